"""Random numbers as a function of seed, example and offset, so that nothing is stored and any order is cheap.

The numbers are outputs of SplitMix64 (Steele, Lea, Flood. Fast Splittable Pseudorandom Number Generators. OOPSLA 2014),
which can be read at any position: output i mixes the bits of seed + (i + 1) gamma. The arithmetic uses 64-bit integers,
so every device computes the same numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.task import derive_seed

GAMMA, FIRST_FACTOR, SECOND_FACTOR = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
OFFSETS = 1 << 16
"""Number of offsets per channel."""
CHANNELS = 1 << 4
"""Number of channels per example, each with its own numbers."""


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Shift 64-bit numbers as if they were unsigned."""
    # Masked because torch's integers are signed, and a shift fills up with copies of the sign.
    return (value >> bits) & ((1 << (64 - bits)) - 1)


class Draws:
    """The random numbers of one seed and purpose; the channels of an example are independent."""

    def __init__(self, seed: int, *purpose: str | int) -> None:
        self.start = derive_seed(seed, *purpose)

    def bits(self, examples: Tensor, offsets: Tensor, channel: int = 0) -> Tensor:
        """Return 32 random bits as int64, in the shape to which examples (below 2^43) and offsets are broadcast."""
        state = ((examples * CHANNELS + channel) * OFFSETS + offsets + 1) * _signed(GAMMA) + self.start
        state = (state ^ _shift_right(state, 30)) * _signed(FIRST_FACTOR)
        state = (state ^ _shift_right(state, 27)) * _signed(SECOND_FACTOR)
        return _shift_right(state ^ _shift_right(state, 31), 32)

    def below(self, bound: Tensor | int, examples: Tensor, offsets: Tensor, channel: int = 0) -> Tensor:
        """Return numbers from 0 to bound - 1, whose probabilities differ by at most 2^-32."""
        return (self.bits(examples, offsets, channel) * bound) >> 32

    def rows(self, bound: int, examples: Tensor, size: int, channel: int = 0) -> Tensor:
        """Return `[examples, size]` numbers from 0 to bound - 1, for examples `[B]`."""
        offsets = torch.arange(size, device=examples.device)
        return self.below(bound, examples.unsqueeze(1), offsets, channel)

    def column(self, bound: int, examples: Tensor, offset: int = 0, channel: int = 0) -> Tensor:
        """Return one number from 0 to bound - 1 for each of the examples `[B]`."""
        return self.below(bound, examples, torch.full_like(examples, offset), channel)

    def orders(self, examples: Tensor, count: int, size: int, channel: int = 0) -> Tensor:
        """Return `[B, count, size]` random orders of the numbers from 0 to size - 1, for examples `[B]`.

        The numbers are sorted by random bits; two equal ones, with a probability of 2^-32, stay in order.
        """
        offsets = torch.arange(count * size, device=examples.device).view(count, size)
        return self.bits(examples.view(-1, 1, 1), offsets, channel).argsort(dim=-1, stable=True)
