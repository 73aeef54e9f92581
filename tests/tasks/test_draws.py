"""Random numbers by example: SplitMix64 as its authors wrote it, and what the tasks rely on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthobench.task import derive_seed
from orthobench.tasks._draws import CHANNELS, OFFSETS, Draws


def splitmix64(state: int) -> int:
    """The next output after a state, in Python's own integers."""
    mask = (1 << 64) - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_transcription_has_the_published_outputs():
    """The first outputs for seed 1234567, as on Rosetta Code's page of SplitMix64."""
    gamma, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1
    outputs = [splitmix64((1234567 + k * gamma) & mask) for k in range(3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(
    st.integers(0, 2**62),
    st.integers(0, 2**43 - 1),
    st.integers(0, CHANNELS - 1),
    st.integers(0, OFFSETS - 1),
    st.integers(1, 2**31),
)
def test_number_is_the_output_at_its_position(seed, example, channel, offset, bound):
    draws = Draws(seed, "a purpose")
    index = (example * CHANNELS + channel) * OFFSETS + offset
    state = (derive_seed(seed, "a purpose") + index * 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
    bits = splitmix64(state) >> 32
    examples, offsets = torch.tensor([example]), torch.tensor([offset])
    assert draws.bits(examples, offsets, channel).tolist() == [bits]
    assert draws.below(bound, examples, offsets, channel).tolist() == [bits * bound >> 32]


@pytest.mark.parametrize("bound", [2, 3, 5, 60])
def test_numbers_are_uniform_and_independent_of_neighbours(bound):
    """Chi-squared statistics stay within six standard deviations of their means."""
    drawn = Draws(0, "uniform").rows(bound, torch.arange(2000), 100)

    def check(counts: torch.Tensor) -> None:
        expected = drawn.numel() / len(counts)
        statistic = ((counts - expected) ** 2 / expected).sum().item()
        freedom = len(counts) - 1
        assert abs(statistic - freedom) < 6 * (2 * freedom) ** 0.5

    check(torch.bincount(drawn.flatten(), minlength=bound).double())
    for other in (drawn.roll(1, 0), drawn.roll(1, 1)):
        check(torch.bincount((drawn * bound + other).flatten(), minlength=bound * bound).double())


def test_channels_seeds_and_purposes_have_their_own_numbers():
    examples = torch.arange(100)
    draws = [Draws(seed, purpose) for seed in (0, 1) for purpose in ("train", "test")]
    rows = [draw.rows(1 << 30, examples, 10, channel) for draw in draws for channel in (0, 1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(rows) for b in rows[:i])
    assert len(torch.cat(rows).unique()) > 0.999 * torch.cat(rows).numel()
