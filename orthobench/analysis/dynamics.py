"""Eight systems of two units without input (AntisymmetricRNN paper, figure 1).

    vanilla:  h <- tanh(W h)          feedback:  h <- h + eps tanh(W h)

T = 50 steps from three starts, eps = 0.1. The matrices of (c) and (d) are a reflection and a rotation, as SciPy's
sampler of that time drew them from the caption's seeds 0 and 1 (D-37). The paper does not give the seed of (a); we use
NumPy's 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

STEPS, STEP_SIZE = 50, 0.1
STARTS = ((0.0, 0.5), (-0.5, -0.5), (0.5, -0.75))

TwoByTwo = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class System:
    panel: str
    what: str
    feedback: bool
    matrix: TwoByTwo


SYSTEMS = (
    System("a", "vanilla, random", False, ((1.764052, 0.400157), (0.978738, 2.240893))),
    System("b", "vanilla, identity", False, ((1.0, 0.0), (0.0, 1.0))),
    System("c", "vanilla, reflection", False, ((0.97522402, 0.22121958), (0.22121958, -0.97522402))),
    System("d", "vanilla, rotation", False, ((0.93583067, 0.35244993), (-0.35244993, 0.93583067))),
    System("e", "feedback, positive eigenvalues", True, ((2.0, -2.0), (0.0, 2.0))),
    System("f", "feedback, negative eigenvalues", True, ((-2.0, 2.0), (0.0, -2.0))),
    System("g", "feedback, imaginary eigenvalues", True, ((0.0, -2.0), (2.0, 0.0))),
    System("h", "feedback, imaginary with diffusion", True, ((-0.15, -2.0), (2.0, -0.15))),
)


def trajectories(system: System, steps: int = STEPS) -> npt.NDArray[np.float64]:
    """Return h_0, ..., h_steps from every start, `[3, steps + 1, 2]`."""
    w, h = np.array(system.matrix), np.array(STARTS)
    trajectory = [h]
    for _ in range(steps):
        h = h + STEP_SIZE * np.tanh(h @ w.T) if system.feedback else np.tanh(h @ w.T)
        trajectory.append(h)
    return np.stack(trajectory, axis=1)


def toy_dynamics() -> dict[str, Any]:
    """Return every panel's matrix, its eigenvalues as [re, im], and the trajectories."""
    return {
        "panels": [
            {
                "panel": system.panel,
                "what": system.what,
                "feedback": system.feedback,
                "matrix": [list(row) for row in system.matrix],
                "eigenvalues": [[value.real, value.imag] for value in np.linalg.eigvals(system.matrix).tolist()],
                "trajectories": trajectories(system).tolist(),
            }
            for system in SYSTEMS
        ]
    }


COMPUTATIONS: dict[str, Callable[[], dict[str, Any]]] = {"toy_dynamics": toy_dynamics}
"""The computations of the papers' studies, by the name that the study uses."""
