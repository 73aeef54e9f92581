"""The eight systems of the AntisymmetricRNN paper's figure 1: known states, norms and eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest

from orthobench.analysis.dynamics import STARTS, SYSTEMS, toy_dynamics, trajectories

PANELS = {system.panel: system for system in SYSTEMS}
AFTER_50 = {
    "b": [[0.0, 0.163171], [-0.163171, -0.163171], [0.163171, -0.168039]],
    "c": [[0.032117, 0.169143], [-0.143304, -0.173814], [0.171332, -0.148133]],
    "d": [[-0.137107, 0.125161], [0.018147, -0.190364], [0.192178, -0.021371]],
    "e": [[-4.948405, 5.413106], [4.138548, -5.413106], [5.497493, -5.719202]],
    "f": [[0.000109, 0.000009], [-0.000118, -0.000009], [-0.000186, -0.000017]],
    "g": [[-0.620995, 0.487439], [-0.906444, -0.465553], [-0.43974, -1.108208]],
    "h": [[-0.503517, -0.119927], [-0.100192, -0.703807], [0.270146, -0.796073]],
}


@pytest.mark.parametrize("panel", AFTER_50)
def test_states_after_50_steps(panel):
    states = trajectories(PANELS[panel])
    assert states.shape == (3, 51, 2)
    np.testing.assert_array_equal(states[:, 0], STARTS)
    np.testing.assert_allclose(states[:, -1], AFTER_50[panel], atol=1.5e-6)


def test_random_system_has_two_fixed_points():
    last = trajectories(PANELS["a"])[:, -1]
    np.testing.assert_allclose(np.abs(last), np.tile([0.971, 0.997], (3, 1)), atol=1e-3)
    assert len({tuple(np.sign(h)) for h in last}) == 2


@pytest.mark.parametrize(("panel", "norms"), [("g", [4.15, 4.04, 4.24]), ("h", [0.574, 0.594, 0.573])])
def test_distances_after_1000_steps(panel, norms):
    last = trajectories(PANELS[panel], 1000)[:, -1]
    np.testing.assert_allclose(np.linalg.norm(last, axis=1), norms, atol=0.005)


def test_record_has_the_published_eigenvalues():
    panels = {panel["panel"]: panel for panel in toy_dynamics()["panels"]}
    assert list(panels) == list("abcdefgh")
    stated = {
        "b": [1, 1],
        "c": [1, -1],
        "e": [2, 2],
        "f": [-2, -2],
        "g": [2j, -2j],
        "h": [-0.15 + 2j, -0.15 - 2j],
    }
    for panel, expected in stated.items():
        eigenvalues = np.array(panels[panel]["eigenvalues"]) @ [1, 1j]
        np.testing.assert_allclose(np.sort_complex(eigenvalues), np.sort_complex(expected), atol=1e-6)
    assert np.abs(np.array(panels["d"]["eigenvalues"]) @ [1, 1j]) == pytest.approx([1, 1], abs=1e-6)
