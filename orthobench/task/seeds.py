"""One seed per run, split by purpose, so that no two uses of randomness share a stream."""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose, such as ("data", "train"); the same on every machine."""
    # Not Python's `hash`, because texts have another one in each process.
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seeded_generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose; runs on any device draw on the CPU, so that they agree."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))
