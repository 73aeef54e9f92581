"""Blocks: the vectors of one iteration by name, packed into bytes.

A block has two parts. The first is plain: a line of JSON, the length of each gradient-norm vector by name, such as
`{"gradient_norm/h":784}`, and then their numbers as float32, the lowest byte first. The rest is a zlib stream with a
preset dictionary, which is the first part followed by `NAMES`. It begins with such a line for the other vectors. Then
follow their numbers, as differences between the bits of neighbours, the highest bytes of all numbers first.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING

from orthobench.metric import GRADIENT_NORM
from orthobench.system.strict_json import load_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WIDTH = 4
"""Bytes of a number."""
NAMES = (
    b'"c":"n":"z":"1.c":"1.h":100,"trained":2,"lengths":,"by_length/prefix_accuracy":,"by_length/accuracy":,'
    b'"gradient_norm/c":,"gradient_norm_per_sample/c":,"gradient_norm/z":,"gradient_norm_per_sample/z":,"heat_map/,'
    b'{"by_length/accuracy":5,"by_length/lengths":5,"by_length/trained":2,"gradient_norm/h":10,'
    b'"gradient_norm_per_sample/h":10}\n'
)
"""Frequent first lines. A block cannot be read with another dictionary, so a change needs a migration."""
LONGEST_HEAD, MOST_NUMBERS = 1 << 16, 1 << 23
"""The most bytes of a line of lengths, and the most numbers of a block, so that no block unpacks to gigabytes."""
PLAIN = f"{GRADIENT_NORM}/"
"""The first letters of the vectors that are not compressed, so that a view reads them (`orthobench.store.views`).

Users want them in plain SQL; all vectors without compression would double the file.
"""


def pack(vectors: Mapping[str, Sequence[float]]) -> bytes:
    """Round vectors to float32, and return the block that holds them, first those whose names begin with `PLAIN`.

    Raises:
        ValueError: they have too many numbers, or too long names.
    """
    import numpy as np  # here, because commands that list runs read no vectors

    plain = {name: values for name, values in vectors.items() if name.startswith(PLAIN)}
    others = {name: values for name, values in vectors.items() if name not in plain}
    lines = [
        f"{json.dumps({name: len(values) for name, values in part.items()}, separators=(',', ':'))}\n".encode()
        for part in (plain, others)
    ]
    if sum(map(len, vectors.values())) > MOST_NUMBERS or max(map(len, lines)) > LONGEST_HEAD:
        raise ValueError(f"the vectors of an evaluation have more than {MOST_NUMBERS} numbers, or too long names")
    numbers, other_numbers = (array("f", chain.from_iterable(part.values())).tobytes() for part in (plain, others))
    start, steps = lines[0] + numbers, np.diff(np.frombuffer(other_numbers, "<u4"), prepend=np.uint32(0))
    # The dictionary begins with the plain part, because the stream thereby has a checksum of it.
    content, stream = steps.tobytes(), zlib.compressobj(9, zdict=start + NAMES)
    parts = [start, stream.compress(lines[1])]
    for byte in reversed(range(WIDTH)):  # the numbers are little-endian
        parts.append(stream.flush(zlib.Z_BLOCK))  # because the bytes of each position have their own frequencies
        parts.append(stream.compress(content[byte::WIDTH]))
    return b"".join([*parts, stream.flush()])


def unpack(block: bytes) -> dict[str, list[float]]:
    """Return the vectors of a block by name, as lists.

    Raises:
        ValueError: the block is damaged.
    """
    return {name: values.tolist() for name, values in unpack_arrays(block).items()}


def unpack_arrays(block: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of a block by name.

    Raises:
        ValueError: the block is damaged.
    """
    import numpy as np  # as above

    lengths, plain, steps = open_block(block)
    others = np.cumsum(np.frombuffer(steps, "<u4"), dtype=np.uint32)
    numbers = np.concatenate((np.frombuffer(plain, "<u4"), others)).view(np.float32)
    ends = accumulate(lengths.values(), initial=0)
    return {name: numbers[start:end] for name, (start, end) in zip(lengths, pairwise(ends), strict=True)}


def open_block(block: bytes) -> tuple[dict[str, int], bytes, bytes]:
    """Return the lengths of a block's vectors by name, and the float32 numbers of the plain ones, which come first.

    The last value has the steps between the bits of all other numbers.

    Raises:
        ValueError: the block is damaged.
    """
    try:
        head, newline, _ = block[:LONGEST_HEAD].partition(b"\n")
        plain = _lengths(head, newline)
        first = len(head) + len(newline)
        end = first + WIDTH * sum(plain.values())
        start, stream = block[:end], block[end:]
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"its vectors cannot be read: {error}") from error
    others, steps = _open_stream(stream, start)
    if plain.keys() & others.keys():
        raise ValueError("its vectors have the same name twice")
    return plain | others, start[first:], steps


def _open_stream(stream: bytes, plain: bytes) -> tuple[dict[str, int], bytes]:
    """Return the lengths of a stream's vectors by name, and the steps between the bits of all their float32 numbers.

    The first line says how many bytes follow, and no more are decompressed, because a few bytes may stand for any
    number of them.

    Args:
        plain: the part of the block before the stream.

    Raises:
        ValueError: the stream or the plain part is damaged.
    """
    try:
        decompressed = zlib.decompressobj(zdict=plain + NAMES)
        head, newline, content = decompressed.decompress(stream, LONGEST_HEAD).partition(b"\n")
        lengths = _lengths(head, newline)
        count = sum(lengths.values())
        if len(content) <= WIDTH * count:
            content += decompressed.decompress(decompressed.unconsumed_tail, WIDTH * count - len(content) + 1)
    except (zlib.error, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"its vectors cannot be read: {error}") from error
    if not decompressed.eof or decompressed.unused_data or len(content) != WIDTH * count:
        raise ValueError("its vectors are cut off or have other bytes at their end")
    ordered = bytearray(len(content))
    for byte in range(WIDTH):
        start = (WIDTH - 1 - byte) * count
        ordered[byte::WIDTH] = content[start : start + count]
    return lengths, bytes(ordered)


@lru_cache(maxsize=256)  # because the tests of most runs log the same vectors, and reports read all of their blocks
def _lengths(head: bytes, newline: bytes) -> dict[str, int]:
    """Return the lengths of vectors by name, from a line of a block.

    Raises:
        ValueError, TypeError, AttributeError: the line is damaged.
    """
    lengths: dict[str, int] = load_json(head)
    count = sum(lengths.values())
    if not newline or min(lengths.values(), default=0) < 0 or not 0 <= count <= MOST_NUMBERS:
        raise ValueError(f"it is said to have {count} numbers")
    return lengths
