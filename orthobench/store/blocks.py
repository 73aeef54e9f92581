"""Vectors as compressed blocks: gradient norms and heat maps are most of a database.

A block is a zlib stream with the preset dictionary `NAMES`. It begins with a line of JSON, which gives the length of
each vector by its name, followed by the float32 numbers of all vectors. Each number is stored as the difference between
its bits and its predecessor's bits, modulo 2^32, because neighbours in a vector are close. All highest bytes come
first, then all second bytes, and so on, because the high bytes repeat. The encoding is lossless, also for NaN and
infinities.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise

WIDTH, HALF = 4, 1 << 31
"""Bytes of a number, and half the number of values that they can have."""
NAMES = (
    b'"c":"n":"z":"1.c":"1.h":100,"trained":2,"lengths":,"by_length/prefix_accuracy":,"by_length/accuracy":,'
    b'"gradient_norm/c":,"gradient_norm_per_sample/c":,"gradient_norm/z":,"gradient_norm_per_sample/z":,"heat_map/,'
    b'{"by_length/accuracy":5,"by_length/lengths":5,"by_length/trained":2,"gradient_norm/h":10,'
    b'"gradient_norm_per_sample/h":10}\n'
)
"""Frequent first lines. A block cannot be read with another dictionary, so a change needs a migration."""


def pack(vectors: Mapping[str, Sequence[float]]) -> bytes:
    """Round vectors to float32, and return the block that holds them."""
    lengths = {name: len(values) for name, values in vectors.items()}
    bits = array("i", array("f", chain.from_iterable(vectors.values())).tobytes())
    steps = array("i", ((bit - before + HALF) % (2 * HALF) - HALF for before, bit in pairwise([0, *bits])))
    content, stream = steps.tobytes(), zlib.compressobj(9, zdict=NAMES)
    parts = [stream.compress(f"{json.dumps(lengths, separators=(',', ':'))}\n".encode())]
    for byte in reversed(range(WIDTH)):  # the numbers are little-endian
        parts.append(stream.flush(zlib.Z_BLOCK))  # because the bytes of each position have their own frequencies
        parts.append(stream.compress(content[byte::WIDTH]))
    return b"".join([*parts, stream.flush()])


def unpack(block: bytes) -> dict[str, list[float]]:
    """Return the vectors of a block by name.

    Raises:
        ValueError: the block is damaged.
    """
    try:
        stream = zlib.decompressobj(zdict=NAMES)
        head, _, content = stream.decompress(block).partition(b"\n")
        lengths: dict[str, int] = json.loads(head)
        count = sum(lengths.values())
    except (zlib.error, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"its vectors cannot be read: {error}") from error
    if not stream.eof or stream.unused_data or len(content) != WIDTH * count:
        raise ValueError("its vectors are cut off or have other bytes at their end")
    ordered = bytearray(len(content))
    for byte in range(WIDTH):
        start = (WIDTH - 1 - byte) * count
        ordered[byte::WIDTH] = content[start : start + count]
    bits = array("f", _running_sums(bytes(ordered)))
    values, ends = bits.tolist(), list(accumulate(lengths.values(), initial=0))
    return {name: values[start:end] for name, (start, end) in zip(lengths, pairwise(ends), strict=True)}


def _running_sums(steps: bytes) -> bytes:
    """Return the running sums of 32-bit numbers, modulo 2^32.

    A few additions of large integers compute all sums at once: each half of the numbers is packed into one integer,
    64 bits apart, so that no sum carries over into the next.
    """
    size = -(-len(steps) // (2 * WIDTH)) * 2 * WIDTH
    low = int.from_bytes((b"\xff" * WIDTH + bytes(WIDTH)) * (size // (2 * WIDTH)), "little")
    whole = int.from_bytes(steps, "little")
    second = whole >> 8 * WIDTH & low
    sums, shift = (whole & low) + second, 16 * WIDTH
    while shift < 8 * size:
        sums += sums << shift & (1 << 8 * size) - 1
        shift *= 2
    return (sums - second & low | (sums & low) << 8 * WIDTH).to_bytes(size, "little")[: len(steps)]
