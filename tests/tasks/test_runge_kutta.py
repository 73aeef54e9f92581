"""The integrator takes the steps of scipy's RK45, and comes to the exact solution as its tolerance shrinks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from orthobench.tasks._runge_kutta import ATOL, integrate

TIMES = np.linspace(0, 12, 97)
STARTS = np.array([[2.0, -0.5, 0.1, 1.5, 0.0], [0.0, 3.0, -0.2, 0.7, 0.0]])


def van_der_pol(state):
    """Stretches of fast and slow change, and a fixed point at the origin: the last system stays there."""
    x, y = state
    return np.stack((y, 3 * (1 - x * x) * y - x))


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-8])
def test_each_system_takes_scipys_steps(rtol):
    calls = []

    def counted(state):
        calls.append(state.shape[1])
        return van_der_pol(state)

    states = integrate(counted, STARTS, TIMES, rtol=rtol)
    evaluations = 0
    for column in range(STARTS.shape[1]):
        solution = solve_ivp(
            lambda _, state: van_der_pol(state), TIMES[[0, -1]], STARTS[:, column], t_eval=TIMES, rtol=rtol
        )
        np.testing.assert_allclose(states[:, :, column].T, solution.y, rtol=0, atol=1e-6)
        evaluations += solution.nfev
    assert sum(calls) == evaluations


def test_error_shrinks_with_the_tolerance():
    exact = solve_ivp(
        lambda _, state: van_der_pol(state), TIMES[[0, -1]], STARTS[:, 0], "DOP853", TIMES, rtol=1e-12, atol=1e-13
    ).y
    errors = []
    for rtol in (1e-3, 1e-5, 1e-7, 1e-9):
        unit = 1e3 * ATOL / rtol  # in which the absolute tolerance is a thousandth of the relative one
        states = integrate(lambda state, unit=unit: unit * van_der_pol(state / unit), unit * STARTS, TIMES, rtol=rtol)
        errors.append(np.abs(states[:, :, 0].T / unit - exact).max())
    assert errors[0] > 1e-4
    assert all(later < earlier / 10 for earlier, later in pairwise(errors))
    assert errors[-1] < 1e-7


def test_system_does_not_depend_on_the_others():
    together = integrate(van_der_pol, STARTS, TIMES)
    for column in range(STARTS.shape[1]):
        alone = integrate(van_der_pol, STARTS[:, [column]], TIMES)
        np.testing.assert_array_equal(together[:, :, [column]], alone)


def test_powers_with_another_rounding_give_the_same_states(monkeypatch):
    """The fifth root is the only operation of a step that IEEE arithmetic leaves to the machine."""

    class Root(np.ndarray):
        def __pow__(self, exponent):
            return np.nextafter(np.asarray(self) ** exponent, np.inf)

    from orthobench.tasks import _runge_kutta

    norm = _runge_kutta._norm
    expected = integrate(van_der_pol, STARTS, TIMES)
    monkeypatch.setattr(_runge_kutta, "_norm", lambda values: norm(values).view(Root))
    np.testing.assert_array_equal(integrate(van_der_pol, STARTS, TIMES), expected)
