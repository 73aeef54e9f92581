"""Bit-stream XOR: data and encodings are those of the CfC program, and its mask is the number of valid steps."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthobench.model.build import build_model
from orthobench.tasks.xor_stream import XORStream, XORStreamSettings, encode_bits, encode_events, streams

CPU = torch.device("cpu")
PAD = 12


def _task(seed: int = 0, **settings) -> XORStream:
    return XORStream(XORStreamSettings(**({"train_size": 60, "test_size": 40} | settings)), seed, CPU)


def _literal(bits: list[int], encoding: str) -> tuple[list[int], list[int]]:
    """Walk through a stream as the program does, and return the bits of the steps and the bits elapsed before each."""
    shown: list[int] = []
    elapsed: list[int] = []
    waiting, last = 0, None
    for bit in bits:
        waiting += 1
        if encoding == "equidistant" or bit != last:
            shown.append(bit)
            elapsed.append(waiting)
            waiting = 0
        last = bit
    if waiting:
        shown.append(bits[-1])
        elapsed.append(waiting)
    return shown, elapsed


@given(st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=PAD - 1), min_size=1, max_size=5))
def test_both_encodings_match_the_program(bit_lists):
    bits = np.zeros((len(bit_lists), PAD), np.uint8)
    for row, values in zip(bits, bit_lists, strict=True):
        row[: len(values)] = values
    lengths = np.array([len(values) for values in bit_lists])
    for encoding, encode in (("equidistant", encode_bits), ("event", encode_events)):
        shown, elapsed, steps = encode(bits, lengths)
        for row, values in enumerate(bit_lists):
            expected = _literal(values, encoding)
            rest = [0] * (PAD - len(expected[0]))
            assert steps[row] == len(expected[0])
            assert shown[row].tolist() == expected[0] + rest
            assert elapsed[row].tolist() == expected[1] + rest
            assert elapsed[row].sum() == len(values)


@pytest.mark.parametrize(("part", "seed"), [("train", 1234984), ("test", 48736)])
@pytest.mark.parametrize("encoding", ["equidistant", "event"])
def test_streams_and_targets_match_the_program(part, seed, encoding):
    """One draw for the length and one for each bit, from a generator of each part."""
    split = getattr(_task(encoding=encoding), part)
    batch = split.batch(torch.arange(40))
    assert batch.inputs.shape == (32, 40, 2)
    random = np.random.RandomState(seed)
    for column in range(40):
        bits = [int(random.randint(low=0, high=2)) for _ in range(random.randint(low=2, high=32))]
        shown, elapsed = _literal(bits, encoding)
        steps = int(batch.lengths[column])
        inputs = batch.inputs[:, column]
        assert inputs[:steps].tolist() == [[bit, time / 32] for bit, time in zip(shown, elapsed, strict=True)]
        assert not inputs[steps:].any()
        assert batch.targets[column].tolist() == [sum(bits) % 2]


def test_data_of_the_program_are_the_same_for_every_run():
    inputs = {
        (seed, data_seed): _task(seed, data_seed=data_seed).train.batch(torch.arange(20)).inputs
        for seed in (0, 1)
        for data_seed in ("program", "run")
    }
    assert torch.equal(inputs[0, "program"], inputs[1, "program"])
    assert not torch.equal(inputs[0, "run"], inputs[1, "run"])


def test_lengths_bits_and_targets_are_uniform():
    bits, lengths = streams(6000, 8, 0)
    counts = np.bincount(lengths, minlength=8)
    assert counts[:2].tolist() == [0, 0]
    assert (abs(counts[2:] / 1000 - 1) < 0.15).all()
    assert bits.sum() / lengths.sum() == pytest.approx(0.5, abs=0.01)
    assert (bits.sum(1) % 2).mean() == pytest.approx(0.5, abs=0.02)


def test_metrics_of_a_logit_match_their_definition():
    task = _task()
    targets = task.test.batch(torch.arange(40)).targets
    assert 0 < targets.sum() < 40
    for logit, share in ((2.0, targets.mean().item()), (-2.0, 1 - targets.mean().item()), (0.0, None)):
        measured = task.measure(torch.full((40, 1), logit), targets)
        values = {name: float(total) / weight for name, (total, weight) in measured.items()}
        if share is None:
            assert values["cross_entropy"] == pytest.approx(XORStream.baselines(XORStreamSettings())["cross_entropy"])
            continue
        assert values["accuracy"] == pytest.approx(share)
        expected = share * math.log1p(math.exp(-2)) + (1 - share) * math.log1p(math.exp(2))
        assert values["cross_entropy"] == pytest.approx(expected, rel=1e-5)
        assert task.loss(torch.full((40, 1), logit), targets).item() == pytest.approx(expected, rel=1e-5)


def test_padding_does_not_change_an_answer():
    """A model's output is that of the stream alone, without padding."""
    from orthobench.models.gru import GRU

    task = _task(encoding="event")
    model = build_model(GRU, GRU.Settings(hidden_size=5), task.signature, torch.Generator().manual_seed(0))
    batch = task.test.batch(torch.arange(8))
    together, _ = batch.through(model)
    for column in range(8):
        alone = batch.inputs[: batch.lengths[column], [column]]
        output, _ = model(alone, lengths=batch.lengths[[column]])
        torch.testing.assert_close(output[0], together[column])


def test_step_without_elapsed_times_shows_its_bit_alone():
    with_times, bits_alone = (_task(encoding="event", elapsed=elapsed) for elapsed in (True, False))
    assert (with_times.signature.input_size, bits_alone.signature.input_size) == (2, 1)
    seen, shown = (task.train.batch(torch.arange(60)) for task in (with_times, bits_alone))
    assert torch.equal(shown.inputs, seen.inputs[:, :, :1])
    assert torch.equal(shown.targets, seen.targets)
    assert torch.equal(shown.lengths, seen.lengths)
    assert "elapsed" not in XORStreamSettings().canonical()
    assert XORStreamSettings(elapsed=False).canonical()["elapsed"] is False


@pytest.mark.parametrize(("pad_size", "best"), [(12, 0.6453125), (32, 0.5500)])
def test_events_without_elapsed_times_carry_little_of_the_parity(pad_size, best):
    """The best rule knows the most likely parity of each shown sequence of bits: for P = 12 over all streams.

    For P = 32 the distribution follows bit by bit: of the first bit, the number of events, and the end's repetition.
    """
    chances: Counter[tuple[int, int, bool, int]] = Counter()
    streams_to = {(first, 1, first, first): 0.5 for first in (0, 1)}  # first bit, events, last bit, parity: chance
    for _ in range(2, pad_size):
        longer: Counter[tuple[int, int, int, int]] = Counter()
        for (first, events, last, parity), chance in streams_to.items():
            for bit in (0, 1):
                chances[first, events + 1, bit == last, parity ^ bit] += chance / 2 / (pad_size - 2)
                longer[first, events + (bit != last), bit, parity ^ bit] += chance / 2
        streams_to = longer
    right = sum(max(chances[*shown, 0], chances[*shown, 1]) for shown in {key[:3] for key in chances})
    assert right == pytest.approx(best, abs=2e-6)
    # What the task shows of its streams allows no more.
    task = _task(encoding="event", elapsed=False, pad_size=pad_size, train_size=20_000)
    batch = task.train.batch(torch.arange(20_000))
    answers: dict[tuple[int, ...], Counter[int]] = {}
    for column, steps, target in zip(batch.inputs[:, :, 0].T.int().tolist(), batch.lengths, batch.targets, strict=True):
        answers.setdefault(tuple(column[: int(steps)]), Counter())[int(target)] += 1
    assert sum(max(counts.values()) for counts in answers.values()) / 20_000 == pytest.approx(right, abs=0.02)
