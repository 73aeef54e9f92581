"""The words and the validators of arguments: what the options of a run and the functions of the API share.

The command line imports this module before anything else, so it needs neither torch nor pydantic. Whole numbers of
NumPy and pandas count as numbers: a seed of 1.0, from a column with a gap, is 1, and one of 1.5 is refused.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from orthobench.errors import UsageError, shown, unknown
from orthobench.system.location import Location

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Preset = Literal["paper", "quick"]
"""The paper's settings, or a small version for a minute or two."""
DeviceName = Literal["auto", "cpu", "cuda"]
BackendName = Literal["auto", "reference", "cpu", "cuda"]
GraphMode = Literal["auto", "on", "off"]
OnDivergence = Literal["stop", "continue"]
KeepWeights = Literal["none", "last", "best", "both"]
WhichWeights = Literal["best", "last"]
LoggedSplit = Literal["train", "valid", "test", "probe"]
"""Where a logged number comes from: a part of the data, or a probe."""
ComparedValue = Literal["end", "final", "best"]
"""Which of a run's tests of its metric to use: the end (`analysis.statistics.curve_end`), the last or the best."""
TableFormat = Literal["csv", "json", "markdown", "latex"]
ImageFormat = Literal["svg", "png", "pdf", "pgfplots"]
ReportFormat = Literal["html", TableFormat, ImageFormat, "reproduction"]
ExportFormat = Literal["safetensors", "onnx", "pt2"]
"""The formats of a trained model: its weights, or its program."""
RunsFormat = Literal["csv", "json", "parquet", "sqlite"]
"""The formats in which `orthobench db export` writes runs."""

PORT = 8765
"""The port of the live page, if it is free."""
LARGEST_SEED = 2**32 - 1
"""The seeds of runs are 0 to this number; NumPy's generators take no others."""
UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""The seconds of the units of a duration."""
_DURATION = "".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in UNITS)
_NONE = ("none", "null")

Validator = Callable[[Any], Any]
"""Returns a value in the type of its option; raises ValueError for a wrong one."""
ArgumentKind = tuple[Validator, str] | Any
"""A validator, and what to give, for the line of an error; or a `Literal`, whose words are the values."""


def is_none(value: Any) -> bool:
    """Return whether a value is None, or text that stands for it."""
    return value is None or (isinstance(value, str) and value.lower() in _NONE)


def is_image(form: ReportFormat) -> TypeIs[ImageFormat]:
    """Return whether a report in this format consists of figures."""
    return form in get_args(ImageFormat)


def check_tag(tag: Any) -> str:
    """Return a tag without the spaces around it.

    Raises:
        ValueError: the tag is empty, is too long, has a comma or a control character, or is the word for no tag.
    """
    if not isinstance(tag, str) or not tag.strip() or "," in tag or not tag.isprintable() or len(tag) > 64:
        raise ValueError(f"{shown(tag)}: a tag is a short text of up to 64 characters without commas")
    if is_none(tag.strip()):
        raise ValueError(f"{tag}: this word selects runs without a tag; choose another tag")
    return tag.strip()


def parse_duration(text: str) -> float:
    """Return the seconds of a text such as 8h, 90m, 1h30m or 2d.

    Raises:
        ValueError: the text is not a duration, or the duration is zero.
    """
    match = re.fullmatch(_DURATION, text.strip().replace(" ", ""))
    counts = match.groups(default="0") if match else ()
    seconds = sum(float(count) * size for count, size in zip(counts, UNITS.values(), strict=False))
    if not seconds:
        raise ValueError(f"'{text}' is not a time: write 8h, 90m or 1h30m")
    return seconds


def whole(low: int, high: float = math.inf) -> Validator:
    """Return the validator of a whole number of any type from `low` to `high`."""

    def validate(value: Any) -> int:
        if not isinstance(value, bool) and isinstance(value, Real):
            number = int(value) if isinstance(value, Integral) else int(float(value))
            if number == value and low <= number <= high:
                return number
        raise ValueError

    return validate


def real(value: Any) -> float:
    """Return a finite number of any type."""
    if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ValueError


def positive(value: Any) -> float:
    """Return a finite number of more than 0."""
    if real(value) > 0:
        return real(value)
    raise ValueError


def not_negative(value: Any) -> float:
    """Return a finite number of at least 0."""
    if real(value) >= 0:
        return real(value)
    raise ValueError


def truth(value: Any) -> bool:
    """Return a truth value, also NumPy's."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise ValueError


def word(value: Any) -> str:
    """Return a text that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise ValueError


def model(value: Any) -> Any:
    """Return the name of a model, or the class of a layer.

    Raises:
        UsageError: it is a layer itself.
    """
    cls = type(value)
    if callable(getattr(cls, "forward", None)):
        raise UsageError(
            f"{cls.__name__}(...) is an instance: pass the class, {cls.__name__}, and its arguments as settings"
        )
    return value if isinstance(value, type) else word(value)


def task(value: Any) -> Any:
    """Return the name of a task, or own data in memory."""
    return value if callable(getattr(type(value), "task_word", None)) else word(value)


def tasks(value: Any) -> tuple[Any, ...]:
    """Return a list of names and data; a single one is a list of one."""
    is_one = callable(getattr(type(value), "task_word", None))
    return tuple(map(task, (value,) if is_one else listed(value)))


def parameters(value: Any) -> Any:
    """Return a number of parameters, as a number or as a text, or a model that has it."""
    return whole(0)(value) if isinstance(value, Real) else model(value)


def label(value: Any) -> str:
    """Return the name of a table or figure as a text; it may be a number."""
    return value if isinstance(value, str) else str(whole(0)(value))


def values(value: Any) -> Any:
    """Return a dictionary of lists."""
    if isinstance(value, Mapping) and all(map(_is_listed, value.values())):
        return value
    raise ValueError


def _is_listed(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping))


def models(value: Any) -> tuple[Any, ...]:
    """Return a list of names and classes; a single one is a list of one."""
    is_list = not isinstance(value, type) and not hasattr(value, "forward")  # nn.Sequential has entries, too
    return tuple(map(model, listed(value) if is_list else (value,)))


def words(value: Any) -> tuple[str, ...]:
    """Return a list of texts of any type; a single text is a list of one."""
    if all(isinstance(entry, str) for entry in listed(value)):
        return listed(value)
    raise ValueError


def listed(value: Any) -> tuple[Any, ...]:
    """Return the entries of a list of any type; a single text or path is a list of one."""
    if isinstance(value, (str, os.PathLike, Location)):
        return (value,)
    if _is_listed(value):
        return tuple(value)
    raise ValueError


def location(value: Any) -> Location:
    """Return a path or URL; the store explains what is wrong with an empty one."""
    if isinstance(value, (str, os.PathLike, Location)):
        return Location.of(value)
    raise ValueError


def named_location(value: Any) -> Location:
    """Return a path or URL that is not empty."""
    if location(value).real.strip():
        return location(value)
    raise ValueError


def places(value: Any) -> tuple[Location, ...]:
    """Return a list of locations; a single one is a list of one."""
    return tuple(map(location, listed(value)))


def path(value: Any) -> Path:
    """Return a path that is not empty."""
    return Path(named_location(value).real)


def paths(value: Any) -> tuple[Path, ...]:
    """Return a list of paths; a single one is a list of one."""
    return tuple(map(path, listed(value)))


def tags(value: Any) -> tuple[str, ...]:
    """Return a list of tags, each once."""
    return tuple(dict.fromkeys(map(check_tag, listed(value))))


def seeds(value: Any) -> Any:
    """Return a number of seeds, or the seeds without repetitions."""
    if isinstance(value, Real):
        return A_COUNT[0](value)
    if isinstance(value, (str, os.PathLike)):
        raise ValueError
    return tuple(dict.fromkeys(map(A_SEED[0], listed(value))))


A_COUNT = (whole(1), "a whole number of at least 1")
A_LIMIT = (whole(0), "a whole number of at least 0")
A_SEED = (whole(0, LARGEST_SEED), f"a whole number from 0 to {LARGEST_SEED}")
A_POSITIVE = (positive, "a positive number")
A_TRUTH = (truth, "True or False")
SOME_SECONDS = (not_negative, "a number of seconds of at least 0")
SOME_PLACES = (places, "a text, or a list of texts")
SOME_TEXTS = (words, "a text, or a list of texts")
SOME_FILES = (paths, "a Python file, or a list of them")
A_FILE = (path, "a file")
A_FOLDER = (path, "a folder")
A_PLACE = (named_location, "a folder or a URL")


def read(name: str, value: Any, kind: ArgumentKind) -> Any:
    """Return the validated value of an argument.

    Raises:
        UsageError: the value is invalid; one line with the fix.
    """
    if isinstance(kind, tuple):
        validate, remedy = kind
        try:
            return validate(value)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"`{name}={shown(value)}`: give {remedy}") from error
    if name == "device" and isinstance(value, str) and value == "gpu":
        raise UsageError("`device='gpu'`: give `device='cuda'`")
    if name == "device" and isinstance(value, str) and value.startswith("cuda:"):
        raise UsageError(
            f"`device={value!r}`: give `device='cuda'`, and choose the GPU by the variable "
            f"CUDA_VISIBLE_DEVICES={value.removeprefix('cuda:')}"
        )
    if not isinstance(value, str) or value not in get_args(kind):
        raise unknown(name, str(value), get_args(kind))
    return value
