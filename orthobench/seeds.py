"""One seed a run, split by purpose, so that no two uses of chance share a stream."""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, for example `derive(seed, "data", "train")`; the same on every machine."""
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator for one purpose. Draws are made on the CPU on every device, so that runs agree on them."""
    return torch.Generator().manual_seed(derive(seed, *purpose))
