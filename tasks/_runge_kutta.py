"""The Runge-Kutta pair 5(4) of Dormand and Prince for many independent systems, each with its own steps.

The method and the step control follow `scipy.integrate.solve_ivp` with RK45. The first step is Hairer's. The next steps
are controlled by the root mean square of the error over ATOL + rtol max(|y_old|, |y_new|). Shampine's interpolant of
order four gives the states between steps. A thousand systems take as long as forty do in scipy.

Where stability limits the steps, the step control amplifies rounding, so that the states of two programs or machines
may differ by as much as the tolerance allows. Here the operations that decide on steps are exact in IEEE arithmetic
except for one power, which is rounded to float32. Every machine therefore takes the same steps, although they diverge
from scipy's.

J. R. Dormand, P. J. Prince, "A family of embedded Runge-Kutta formulae", J. Comp. Appl. Math. 6, 1980. L. F. Shampine,
"Some practical Runge-Kutta formulas", Math. Comp. 46, 1986.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Derivative = Callable[[Array], Array]

STAGES: tuple[tuple[float, ...], ...] = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
"""The weights of the earlier stages in each stage; the last stage is at the new state."""
ERROR = (-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40)
"""The weights of the stages in the difference between the two orders."""
INTERPOLANT = (
    (1, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
    (0, 0, 0, 0),
    (0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
    (0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
    (0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
    (0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
    (0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
)
"""The weights of the stages for the first to fourth power of the elapsed fraction of the step."""

ATOL = 1e-6
"""The absolute tolerance of a step's error, scipy's default."""
_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0


def integrate(derivative: Derivative, start: Array, times: Array, *, rtol: float = 1e-3) -> Array:
    """Return the states `[points, features, systems]` of y' = derivative(y) at increasing times `[points]`.

    Args:
        derivative: maps states `[features, systems]` to their derivatives; each column depends only on itself.
        start: states `[features, systems]` at the first time.
        rtol: relative tolerance of a step's error, scipy's default.
    """
    states = np.empty((len(times), *start.shape))
    states[0] = start
    active = np.arange(start.shape[1])
    time, y, slope = np.full(len(active), times[0]), start, derivative(start)
    length = _first_steps(derivative, y, slope, times[-1] - times[0], rtol)
    rejected = np.zeros(len(active), bool)
    while len(active):
        length = np.maximum(length, 10 * np.spacing(time))
        step_end = np.minimum(time + length, times[-1])
        step = step_end - time
        stages = _stages(derivative, y, slope, step)
        y_new = stages[0]
        scale = ATOL + rtol * np.maximum(np.abs(y), np.abs(y_new))
        error = _norm(step * _combine(ERROR, stages[1]) / scale)
        accepted = error < 1
        with np.errstate(divide="ignore"):
            power = (error**-0.2).astype(np.float32)
        factor = np.clip(_SAFETY * power.astype(np.float64), _SHRINK, _GROW)
        length = step * np.where(accepted & rejected, np.minimum(factor, 1), factor)
        _interpolate(states, times, active, accepted, time, step_end, y, stages[1])
        rejected = ~accepted
        time, y = np.where(accepted, step_end, time), np.where(accepted, y_new, y)
        slope = np.where(accepted, stages[1][-1], slope)
        going = time < times[-1]
        if not going.all():
            active, time, length, rejected = active[going], time[going], length[going], rejected[going]
            y, slope = y[:, going], slope[:, going]
    return states


def _combine(weights: Sequence[float], stages: Sequence[Array]) -> Array:
    total = weights[0] * stages[0]
    for weight, stage in zip(weights[1:], stages[1:], strict=False):
        if weight:
            total += weight * stage
    return total


def _stages(derivative: Derivative, y: Array, slope: Array, step: Array) -> tuple[Array, list[Array]]:
    """Return the state after a step and the derivatives at its seven stages."""
    stages = [slope]
    for weights in STAGES:
        reached = y + step * _combine(weights, stages)
        stages.append(derivative(reached))
    return reached, stages


def _interpolate(
    states: Array,
    times: Array,
    active: NDArray[np.int64],
    accepted: NDArray[np.bool_],
    time: Array,
    step_end: Array,
    y: Array,
    stages: list[Array],
) -> None:
    """Write the states at the times in (time, step_end] of each accepted step."""
    first, last = (np.searchsorted(times, border, side="right") for border in (time, step_end))
    counts = np.where(accepted, last - first, 0)
    column = np.repeat(np.arange(len(active)), counts)
    point = np.arange(counts.sum()) + np.repeat(first - (counts.cumsum() - counts), counts)
    step = (step_end - time)[column]
    share = (times[point] - time[column]) / step
    slopes = [stage[:, column] for stage in stages]
    moved = np.zeros_like(slopes[0])
    for power in range(4, 0, -1):
        weights = tuple(row[power - 1] for row in INTERPOLANT)
        moved = share * (moved + _combine(weights, slopes))
    states[point, :, active[column]] = (y[:, column] + step * moved).T


def _norm(values: Array) -> Array:
    root: Array = np.sqrt(np.mean(values**2, axis=0))
    return root


def _first_steps(derivative: Derivative, y: Array, slope: Array, span: float, rtol: float) -> Array:
    """Return the length of each system's first step (Hairer, Norsett, Wanner, section II.4)."""
    scale = ATOL + rtol * np.abs(y)
    size, speed = _norm(y / scale), _norm(slope / scale)
    tiny = (size < 1e-5) | (speed < 1e-5)
    guess = np.minimum(np.where(tiny, 1e-6, 0.01 * size / np.where(tiny, 1, speed)), span)
    bend = _norm((derivative(y + guess * slope) - slope) / scale) / guess
    steepest = np.maximum(speed, bend)
    still = steepest <= 1e-15
    by_order = np.where(still, np.maximum(1e-6, 1e-3 * guess), (0.01 / np.where(still, 1, steepest)) ** 0.2)
    lengths: Array = np.minimum(np.minimum(100 * guess, by_order), span)
    return lengths
