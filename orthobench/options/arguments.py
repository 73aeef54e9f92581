"""The words and the types of arguments: what the options of a run and the functions of the API share.

Pydantic checks arguments against these types (`checked`), and takes no text and no truth value for a number. Whole
numbers of NumPy and pandas count: a seed of 1.0, from a column with a gap, is 1, and one of 1.5 is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from orthobench.errors import UsageError, shown
from orthobench.system.location import Location, Place

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
ComparedValue = Literal["end", "final", "best", "at_best_validation"]
"""Which of a run's tests of its metric to use: the end (`analysis.statistics.curve_end`), the last or the best."""
TableFormat = Literal["csv", "json", "markdown", "latex"]
ImageFormat = Literal["svg", "png", "pdf", "pgf"]
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


@dataclass(frozen=True)
class Give:
    """What to give for an argument: its error says so, in place of pydantic's reasons, one for each type of a union."""

    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(handler(source), "wrong", custom_error_message=f"give {self.what}")


def python_value(value: Any) -> Any:
    """Return Python's number or truth value for NumPy's, and anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def entries(value: Any) -> Any:
    """Return the entries of a list of any type as a tuple; anything else, also a text or a path, as it is."""
    if isinstance(value, bytes):
        raise ValueError("should be text")
    is_one = isinstance(value, (str, os.PathLike, Mapping, type)) or not isinstance(value, Iterable)
    return value if is_one else tuple(value)


def listed(value: Any) -> tuple[Any, ...]:
    """Return the entries of a list of any type; anything else is a list of one."""
    given = entries(value)
    return given if isinstance(given, tuple) else (given,)


def refuse_one_gpu(device: Any) -> Any:
    """Return a device.

    Raises:
        UsageError: it is called as torch calls one GPU; the message says how to choose it.
    """
    if device == "gpu":
        raise UsageError("`device='gpu'`: give `device='cuda'`")
    if isinstance(device, str) and device.startswith("cuda:"):
        raise UsageError(
            f"`device={device!r}`: give `device='cuda'`, and choose the GPU by the variable "
            f"CUDA_VISIBLE_DEVICES={device.removeprefix('cuda:')}"
        )
    return device


def _number(value: Any) -> Any:
    number = python_value(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _text(value: Any) -> Any:
    number = _number(value)
    return str(number) if type(number) is int else value


def _once(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _named(location: Location) -> Location:
    if not location.real.strip():
        raise ValueError
    return location


def _path(value: Any) -> Any:
    return Path(_named(Location.of(value)).real) if isinstance(value, (str, os.PathLike, Location)) else value


def refuse_layer(model: Any) -> Any:
    """Return a model.

    Raises:
        UsageError: it is a layer instead of its class.
    """
    cls = type(model)
    if callable(getattr(cls, "forward", None)):
        raise UsageError(
            f"{cls.__name__}(...) is an instance: pass the class, {cls.__name__}, and its arguments as settings"
        )
    return model


def _models(value: Any) -> tuple[Any, ...]:
    return tuple(map(refuse_layer, listed(refuse_layer(value))))  # nn.Sequential has entries, too


_Whole = Annotated[int, BeforeValidator(_number)]
AtLeastZero = Annotated[_Whole, Field(ge=0)]
Count = Annotated[_Whole, Field(ge=1)]
Seed = Annotated[_Whole, Field(ge=0, le=LARGEST_SEED)]
Port = Annotated[_Whole, Field(ge=0, le=65_535)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
NotNegative = Annotated[Number, Field(ge=0)]
Positive = Annotated[Number, Field(gt=0)]
Name = Annotated[str, Field(min_length=1)]
Label = Annotated[str, BeforeValidator(_text), Give("a number or a name")]
"""A table or figure of a paper."""
Texts = Annotated[Sequence[str], BeforeValidator(listed)]
Tags = Annotated[
    Sequence[Annotated[str, AfterValidator(check_tag)]],
    AfterValidator(_once),
    BeforeValidator(listed),
    Give("words of up to 64 characters, without commas, and other than none, which selects runs without a tag"),
]
Device = Annotated[DeviceName, BeforeValidator(refuse_one_gpu)]
Database = Annotated[Place, AfterValidator(Location.of), Give("a file or an SQLAlchemy URL")]
"""The store explains what is wrong with an empty name."""
Databases = Annotated[Sequence[Database], BeforeValidator(listed)]
NamedPlace = Annotated[Place, AfterValidator(Location.of), AfterValidator(_named), Give("a folder or a URL")]
Places = Annotated[
    Sequence[Annotated[Place, AfterValidator(Location.of)]], BeforeValidator(listed), Give("a text, or a list of texts")
]
File = Annotated[Path, BeforeValidator(_path), Give("a path")]
"""A file or a folder."""
FileName = Annotated[str | Path, BeforeValidator(_path), Give("a path")]
Files = Annotated[Sequence[File], BeforeValidator(listed)]
Model = Annotated[
    Name | type,
    Give("the name of a model, such as 'scornn', or the class of a layer"),
    BeforeValidator(refuse_layer),  # after `Give`, which would replace its message
]
Models = Annotated[
    str | type | Sequence[Name | type],
    Give("the name of a model or the class of a layer, or a list of them"),
    BeforeValidator(_models),
]
Parameters = Annotated[
    AtLeastZero | Name | type,
    Give("a number of parameters, such as 15_000, or a model of the sweep"),
    BeforeValidator(refuse_layer),
]
Seeds = Annotated[
    Count | Annotated[Sequence[Seed], AfterValidator(_once), BeforeValidator(entries)],
    Field(union_mode="left_to_right"),
    Give(f"a number of seeds of at least 1, or a list of whole numbers from 0 to {LARGEST_SEED}"),
]
