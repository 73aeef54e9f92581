"""The tests that are installed with the package, which `orthobench doctor --retest` runs on the user's machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from orthobench.recurrence import kernels
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.kernels import Gradients
from orthobench.recurrence.ops import operations
from orthobench.testing.kernels.test_models import CATALOG, test_model_agrees
from orthobench.testing.kernels.test_models import (
    test_steps_of_an_optimiser_round_as_those_of_torch as test_steps_of_an_optimiser_round_as_those_of_torch,
)
from orthobench.testing.kernels.test_operations import FORMS, test_form_agrees
from orthobench.testing.kernels.test_operations import (
    test_form_with_projected_inputs_agrees as test_form_with_projected_inputs_agrees,
)

KERNELS = {kernel for each in operations() if (kernel := kernels.find(each, "cpu"))}
UNSEEN = {"output": set(), "weight": {"rwkv7"}, "x": set(), "state": {"pd_ssm"}}
"""Models whose gradients the part changes by less than the tolerance; the tests of their kernels here see it."""


def plant(kernel: Any, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a kernel return a wrong output, or a wrong gradient of its weight (else its vectors), inputs or state."""
    forward, backward = kernel.forward, kernel.backward

    def wrong_forward(x: torch.Tensor, arguments: Any, keep: bool) -> Any:
        (first, *others), *rest = forward(x, arguments, keep)
        return (first * 1.001 if part == "output" else first, *others), *rest

    def wrong_backward(arguments: Any, tape: Any) -> Gradients:
        gradients = backward(arguments, tape)
        match part:
            case "weight" if gradients.weight is None:
                wrong = {name: None if each is None else each * 1.001 for name, each in gradients.parameters.items()}
                return replace(gradients, parameters=wrong)
            case "weight":
                return replace(gradients, weight=gradients.weight * 1.001)
            case "x":
                return replace(gradients, x=None if gradients.x is None else gradients.x * torch.nan)
            case "state":
                return replace(gradients, state=tuple(state * 1.001 for state in gradients.state))
        return gradients

    monkeypatch.setattr(kernel, "forward", staticmethod(wrong_forward))
    monkeypatch.setattr(kernel, "backward", staticmethod(wrong_backward))


def passes(test: Callable[..., None], *arguments: Any) -> bool:
    try:
        test(*arguments, "cpu")
    except AssertionError:
        return False
    return True


@pytest.mark.skipif(bool(call_c.missing()), reason="no C compiler (Debian: gcc, libc6-dev)")
@pytest.mark.parametrize("part", ["output", "weight", "x", "state"])
def test_wrong_value_or_gradient_of_any_kernel_is_detected(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels are wrong at once, so that one round of tests tells of each."""
    for kernel in KERNELS:
        plant(kernel, part, monkeypatch)
    assert [form.id for form in FORMS if passes(test_form_agrees, *form.values, False)] == []
    models = {
        name for name in CATALOG.built_in("model") if all(passes(test_model_agrees, name, r) for r in (True, False))
    }
    print(part, models)
    assert models == {"stack_lstm", *UNSEEN[part]}
