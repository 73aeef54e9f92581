"""The content of a file of kept weights: safetensors, with the facts of its run as JSON in the file's metadata.

Reading such a file executes no code, because it contains only numbers and text.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from orthobench.errors import UsageError
from orthobench.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["best", "last", "state"]
"""The weights at the best test, the weights after the last iteration, and the state for continuing a run."""
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The weights of a model that can be used again."""
SUFFIX = ".safetensors"
FACTS = "orthobench"
"""The metadata entry that holds the facts."""
FORMAT = 1
"""Version of the facts."""
BROKEN = "restore the file, or train the run again with `force=True`"


@dataclass(frozen=True)
class Content:
    """The tensors of a file by name, and the facts of their run.

    The facts are the run's key and `spec`, the file's `kind`, the `iteration`, and the model's `signature`. A training
    state's facts also include its structure.
    """

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def encode(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file; the tensors may be on any device and may share memory."""
    from safetensors.torch import save

    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    record = {"format": FORMAT, "version": __version__, **facts}
    return save(own, {"format": "pt", FACTS: json.dumps(record, sort_keys=True)})


def decode(content: bytes, name: str) -> Content:
    """Return the tensors and the facts of a file.

    Args:
        name: the file, as errors name it.

    Raises:
        UsageError: the file is cut off or damaged, or another program wrote it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    facts = _facts(content, name)
    try:
        return Content(load(content), facts)
    except (SafetensorError, ValueError, LookupError, TypeError, RuntimeError, OverflowError) as error:
        raise UsageError(f"{name} is cut off or damaged ({error}): {BROKEN}") from error


def _facts(content: bytes, name: str) -> dict[str, Any]:
    """Return the facts from the header, which is 8 bytes with its length, then JSON."""
    try:
        (length,) = struct.unpack_from("<Q", content)
        if length > len(content) - 8:
            raise UsageError(f"{name} is cut off or not a safetensors file: {BROKEN}")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    except (ValueError, AttributeError, RecursionError, struct.error) as error:
        raise UsageError(f"{name} is cut off or not a safetensors file: {BROKEN}") from error
    try:
        facts = json.loads(metadata[FACTS])
        if facts["format"] > FORMAT:
            raise UsageError(f"{name} has the newer format {facts['format']}: update orthobench")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} has no facts of a run: give a file that orthobench wrote") from error
    return dict(facts)


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a file's content in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def file_name(key: str, kind: str) -> str:
    """Return the name of a run's file of this kind."""
    return f"{key}.{kind}{SUFFIX}"
