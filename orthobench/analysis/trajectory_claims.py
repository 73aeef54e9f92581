"""Check claims about computed trajectories: arrays `[starts, steps + 1, 2]`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orthobench.papers import Claim


def _distances(courses: np.ndarray) -> np.ndarray:
    """Return the final over the initial distance from the origin of trajectories `[starts, steps + 1, 2]`."""
    norms = np.linalg.norm(courses, axis=-1)
    ratios: np.ndarray = norms[:, -1] / norms[:, 0]
    return ratios


def _contracts(claim: Claim, courses: np.ndarray) -> tuple[bool, str]:
    most = float(_distances(courses).max())
    return most <= claim.factor, f"ends at {most:.2g} of the distance it starts at, or less; limit {claim.factor:g}"


def _leaves(claim: Claim, courses: np.ndarray) -> tuple[bool, str]:
    least = float(_distances(courses).min())
    return least > claim.factor, f"ends at {least:.3g} times the distance it starts at, or more; over {claim.factor:g}"


def _keeps_distance(claim: Claim, courses: np.ndarray) -> tuple[bool, str]:
    ratios = _distances(courses)
    least, most = float(ratios.min()), float(ratios.max())
    holds = 1 / claim.factor <= least and most <= claim.factor
    return (
        holds,
        f"ends at {least:.2f} to {most:.2f} times the distance it starts at; within a factor of {claim.factor:g}",
    )


def _two_fixed_points(claim: Claim, courses: np.ndarray) -> tuple[bool, str]:
    moving = float(np.linalg.norm(courses[:, -1] - courses[:, -2], axis=-1).max())
    ends = np.unique(courses[:, -1].round(3), axis=0)
    return moving < 1e-6 and len(ends) == 2, f"{len(ends)} different ends; the last step moves by {moving:.1g}"


PANEL_CHECKS: dict[str, Callable[[Claim, np.ndarray], tuple[bool, str]]] = {
    "two_fixed_points": _two_fixed_points,
    "contracts": _contracts,
    "leaves": _leaves,
    "keeps_distance": _keeps_distance,
}
