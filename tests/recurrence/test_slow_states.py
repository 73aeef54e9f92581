"""A state that decays slowly toward an input that stays the same does not drift in float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from orthobench.recurrence.call import Call
from orthobench.recurrence.cpu import call_c, native
from orthobench.recurrence.ops.gru import gru
from orthobench.recurrence.ops.lem import lem
from orthobench.recurrence.ops.minimal import min_gru

UNITS, STEPS = 16, 1000
CANDIDATES = torch.linspace(0.1, 0.9, UNITS)  # each adds another fraction of the state's last place


def min_gru_call(steps: int, gate: float, candidates: Tensor, state: Tensor) -> Call:
    bias = torch.cat((torch.full((UNITS,), -gate), candidates))
    return min_gru.call(torch.zeros(steps, 1, 2 * UNITS), bias, (state,), None, True)


def gru_call(steps: int, gate: float, candidates: Tensor, state: Tensor) -> Call:
    x = torch.cat((torch.zeros(UNITS), torch.full((UNITS,), gate), candidates)).repeat(steps, 1, 1)
    return gru.call(x, torch.zeros(3 * UNITS, UNITS), (state,), None)


def lem_call(steps: int, gate: float, candidates: Tensor, state: Tensor) -> Call:
    gates = torch.full((UNITS,), -gate)
    x = torch.cat((gates, candidates, gates, candidates)).repeat(steps, 1, 1)
    return lem.call(x, torch.zeros(4 * UNITS, UNITS), (state, state), None, 1.0)


@pytest.mark.parametrize(("call_of", "off"), [(min_gru_call, -80.0), (gru_call, 0.0), (lem_call, 0.0)])
def test_rounding_has_no_bias(call_of: Callable[[int, float, Tensor, Tensor], Call], off: float) -> None:
    """The truth is h <- a h + b g in float64, with the float32 numbers a, b and g that single steps show.

    `off` is the pre-activation of a candidate of 0.
    """
    if call_c.missing():
        pytest.skip("no C compiler (Debian: gcc, libc6-dev)")

    def states(steps: int, gate: float, candidates: Tensor, state: float) -> Tensor:
        outputs, _ = native.run(call_of(steps, gate, candidates, torch.full((1, UNITS), state)))
        return outputs[:, 0].double()

    candidate = states(1, -80.0, CANDIDATES, 0.0)  # sigmoid(-80) is 0 next to 1
    kept = states(1, 9.0, torch.full((UNITS,), off), 1.0)
    written = states(1, 9.0, torch.full((UNITS,), 1.0), 0.0) / states(1, -80.0, torch.full((UNITS,), 1.0), 0.0)
    value, expected = torch.full((UNITS,), 10.0, dtype=torch.float64), []
    for _ in range(STEPS):
        value = kept[0] * value + written[0] * candidate[0]
        expected.append(value)
    # A rounding is off by 2^-25 at the most, relative to 10 by 2^-24.4, and by 3e-8 in the mean. A thousand of them are
    # off by 1e-6, and five times that is enough for 16 units. With a bias they would be off by up to 5e-5.
    torch.testing.assert_close(states(STEPS, 9.0, CANDIDATES, 10.0), torch.stack(expected), rtol=5e-6, atol=0)
