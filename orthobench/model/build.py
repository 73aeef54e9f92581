"""Build a model for a task, also without memory for its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import psutil
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from orthobench.errors import UsageError
from orthobench.matrices.initial import torch_linear_
from orthobench.model import Model, ModelSettings, Signature
from orthobench.model.stack import stack_of


def check_size(model_class: type[Model], settings: ModelSettings, signature: Signature) -> None:
    """Refuse sizes for which the parameters alone exceed the machine's memory.

    The check builds the model without memory for its tensors, and only if square matrices of the largest size, one per
    layer, would be large.

    Raises:
        UsageError: the parameters need more memory than the machine has.
    """
    memory, sizes = psutil.virtual_memory().total, {"hidden_size": settings.hidden_size}
    if settings.block is not None:
        sizes["block_size"] = settings.block_size
    if settings.layers > 1:
        sizes["layers"] = settings.layers
    least = 4 * settings.layers * max(sizes.get("block_size", 0), settings.hidden_size) ** 2
    # Most models leave here, because building one only to count its weights takes longer than this product.
    if least < memory // 4:
        return
    try:
        model = build_without_memory(model_class, settings, signature)
        needed = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    except Exception:  # the model computes with the values, so count at least one matrix per layer, 4 bytes a weight
        needed = least
    if needed > memory:
        raise UsageError(
            f"{', '.join(f'{name}={size}' for name, size in sizes.items())}: the parameters alone need "
            f"{needed / 2**30:.3g} GiB, and this machine has {memory / 2**30:.3g} GiB of memory: choose a smaller size"
        )


def build_model(
    model_class: type[Model], settings: ModelSettings, signature: Signature, generator: torch.Generator
) -> Model:
    """Build a model with these settings: of this class, or a stack of its cells (`orthobench.model.stack`).

    With an embedding E `[e, m]` the model reads E x_t (setting `embedding_start`). The setting `output_weight`
    replaces the model's own initial output weight.
    """
    if settings.is_stack:
        model_class = stack_of(model_class, model_class.layer_class(settings))
    size = settings.embedding_size
    inner = signature if size is None else replace(signature, input_size=size)
    model = model_class(settings, inner, generator)
    if settings.output_weight == "linear":
        torch_linear_(model.output_weight, model.output_weight.shape[1], generator)
    elif settings.output_weight == "glorot":
        nn.init.xavier_uniform_(model.output_weight, generator=generator)
    if size is None:
        return model
    embedding = torch.empty(size, signature.input_size)
    if settings.embedding_start == "normal":
        nn.init.normal_(embedding, generator=generator)
    else:
        nn.init.uniform_(embedding, -0.1, 0.1, generator=generator)
    model.embedding = nn.Parameter(embedding)
    return model


def build_without_memory(model_class: type[Model], settings: ModelSettings, signature: Signature) -> Model:
    """Return a model whose tensors have shapes but neither values nor memory.

    A model that computes with the values of its tensors may raise any error.
    """
    with _WithoutMemory():
        return build_model(model_class, settings, signature, torch.Generator())


class _WithoutMemory(TorchFunctionMode):
    """A mode in which new tensors have shapes but no values, and random numbers need no generator."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        arguments = {name: value for name, value in (kwargs or {}).items() if name != "generator"}
        if func in _device_constructors():
            arguments["device"] = "meta"
        return func(*args, **arguments)
