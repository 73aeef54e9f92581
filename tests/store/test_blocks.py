"""Blocks return the float32 of each number bit for bit, and damage is noticed."""

from __future__ import annotations

import math
import random
import struct
import tracemalloc
import zlib

import pytest

from orthobench.store.blocks import LONGEST_HEAD, MOST_NUMBERS, NAMES, pack, unpack

SMALLEST, LARGEST = 2.0**-149, 3.4028234663852886e38


def bits(values) -> bytes:
    return struct.pack(f"={len(values)}f", *values)


@pytest.mark.parametrize(
    "vectors",
    [
        {},
        {"a": []},
        {"a": [1.5]},
        {"a": [], "b": [0.1, -0.1, 0.0, -0.0], "c": []},
        {"gradient_norm/h": [math.nan, math.inf, -math.inf, SMALLEST, -SMALLEST, LARGEST, -LARGEST]},
        {"ä/ \n": [1.0, 2.0, 3.0], "b": [1e-3 * step for step in range(2001)]},
        {"gradient_norm/h": [0.5], "gradient_norm/ä \n": [], "gradient_norm/c": [2.0, 3.0], "a": [0.25], "b": [4.0]},
    ],
)
def test_vectors_round_trip(vectors):
    unpacked = unpack(pack(vectors))
    assert list(unpacked) == list(vectors)
    for name, values in vectors.items():
        assert bits(unpacked[name]) == bits(values)
    assert pack(unpacked) == pack(vectors)


def test_any_float32_round_trips():
    words = struct.pack("=5000I", *(random.Random(1).getrandbits(32) for _ in range(5000)))
    values = [value for value in struct.unpack("=5000f", words) if not math.isnan(value)]
    assert bits(unpack(pack({"a": values}))["a"]) == bits(values)


def test_smooth_vector_takes_less_than_three_quarters():
    values = [math.exp(-step / 100) for step in range(1000)]
    assert len(pack({"gradient_norm_per_sample/h": values})) < 4 * 1000 * 0.75


def test_gradient_norms_come_first_as_they_are():
    block = pack(
        {"a": [1.0], "gradient_norm/h": [0.5, 3.0], "gradient_norm_per_sample/h": [2.0], "gradient_norm/c": []}
    )
    assert block.startswith(b'{"gradient_norm/h":2,"gradient_norm/c":0}\n' + struct.pack("<2f", 0.5, 3.0))
    assert list(unpack(block)) == ["gradient_norm/h", "gradient_norm/c", "a", "gradient_norm_per_sample/h"]


@pytest.mark.parametrize("name", ["a", "gradient_norm/h"])
def test_damage_is_detected(name):
    """A changed byte is, but for the bits that fill the last byte before the checksum; so is a cut."""
    vectors = {name: [0.5, 0.25, 3.0], "b": [1.0]}
    block = pack(vectors)
    unnoticed = 0
    for position in range(len(block)):
        with pytest.raises(ValueError, match="its vectors"):
            unpack(block[:position])
        try:
            assert unpack(block[:position] + bytes([block[position] ^ 0x80]) + block[position + 1 :]) == vectors
            unnoticed += 1
        except ValueError:
            pass
    assert unnoticed <= 1
    with pytest.raises(ValueError, match="its vectors"):
        unpack(block + b"x")


def compressed(head: bytes, zeros: int) -> bytes:
    stream = zlib.compressobj(9, zdict=NAMES)
    return stream.compress(head + bytes(zeros)) + stream.flush()


def twice(start: bytes) -> bytes:
    """Return a block whose plain part is also its stream."""
    stream = zlib.compressobj(9, zdict=start + NAMES)
    return start + stream.compress(start) + stream.flush()


@pytest.mark.parametrize(
    "make",
    [
        lambda: compressed(b'{"a":2}\n', 1 << 26),
        lambda: compressed(b"", 1 << 26),
        lambda: compressed(b'{"a":%d}\n' % (MOST_NUMBERS + 1), 1 << 26),
        lambda: compressed(b'{"a":9,"b":-7}\n', 1 << 26),
        lambda: compressed(b'{"a":1e9}\n', 1 << 26),
        lambda: compressed(b'{"a":NaN}\n', 1 << 26),
        lambda: compressed(b'{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n", 8),
        lambda: b'{"a":%d}\n' % (MOST_NUMBERS + 1) + bytes(1 << 26),
        lambda: b'{"a":9,"b":-7}\n' + bytes(8),
        lambda: b'{"a":1.5}\n' + bytes(8),
        lambda: b'{"a":NaN}\n' + bytes(8),
        lambda: b'{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n" + bytes(8),
        lambda: b"{" + bytes(1 << 26),
        lambda: twice(b'{"a":1}\n' + bytes(4)),
    ],
    ids=[
        *(
            "more than it says",
            "no first line",
            "too many",
            "fewer than none",
            "no whole number",
            "no number",
            "nested",
        ),
        *("too many plain", "fewer plain than none", "no whole number of plain", "no number of plain", "nested plain"),
        *("no plain line", "one name twice"),
    ],
)
def test_a_block_unpacks_to_what_its_first_line_says_and_no_further(make):
    block = make()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="its vectors"):
            unpack(block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * LONGEST_HEAD < 1 << 26


def test_what_cannot_be_read_back_is_not_packed():
    half = [0.0] * (MOST_NUMBERS // 2)
    long = "a" * LONGEST_HEAD
    for vectors in ({"a": half, "gradient_norm/h": [*half, 0.0]}, {long: []}, {f"gradient_norm/{long}": []}):
        with pytest.raises(ValueError, match="numbers, or too long names"):
            pack(vectors)
    assert unpack(pack({"a" * (LONGEST_HEAD - 7): [1.0]}))["a" * (LONGEST_HEAD - 7)] == [1.0]
