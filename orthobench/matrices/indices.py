"""Tables of indices that are computed once per size and device."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps

import numpy as np
import torch
from torch import Tensor


def index_table(
    count: Callable[..., int],
) -> Callable[[Callable[..., np.ndarray]], Callable[..., Tensor]]:
    """Decorate a function from sizes to indices, so that it takes a device too and returns a cached tensor.

    The latest 16 tensors are kept. Tensors created while `torch.export` traces are not, because later calls would get
    traced tensors.

    Args:
        count: the number of indices for these sizes; on the device meta, which has only shapes, none are computed.
    """

    def decorate(make: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
        def table(*sizes: int, device: torch.device) -> Tensor:
            if device.type == "meta":
                return torch.empty(count(*sizes), dtype=torch.int64, device=device)
            return torch.from_numpy(make(*sizes)).to(device)

        cached = lru_cache(maxsize=16)(table)

        @wraps(make)
        def tensor(*sizes: int, device: torch.device) -> Tensor:
            return table(*sizes, device=device) if torch.compiler.is_exporting() else cached(*sizes, device=device)

        return tensor

    return decorate
