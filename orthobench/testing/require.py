"""Requirements that raise the messages of the checks."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch


def require(holds: bool, otherwise: str) -> None:
    """Raise AssertionError with the message `otherwise` unless `holds`, even under `python -O`, unlike `assert`."""
    if not holds:
        raise AssertionError(otherwise)


def require_apart(names: Iterable[str], taken: Iterable[str], whose: str) -> None:
    """Require that names of settings differ from `taken`, because users give all kinds of settings in one list."""
    both = set(names) & set(taken)
    require(not both, f"the settings {', '.join(sorted(both))} are also settings of {whose}: rename them")


@contextmanager
def no_global_draws(where: str) -> Iterator[None]:
    """Require that the `with` block leaves the global generators of torch, numpy and Python unchanged."""
    before = _global_states()
    yield
    changed = [name for name, state in _global_states().items() if state != before[name]]
    require(
        not changed,
        f"{where} draws from the global generator of {' and '.join(changed)}: pass a torch.Generator to each draw",
    )


def _global_states() -> dict[str, str]:
    """Return the state of each global generator as text."""
    return {
        "torch": str(torch.get_rng_state().tolist()),
        "numpy": repr(np.random.get_state(legacy=False)["state"]),
        "Python": repr(random.getstate()),
    }
