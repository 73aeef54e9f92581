"""Where an error was raised in the user's own code, as opposed to that of Python and of installed packages."""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import torch

from orthobench.errors import one_line

_ELSEWHERE = (Path(__file__).parents[1], Path(sysconfig.get_path("stdlib")))
"""The folders of orthobench and of Python."""
_INSTALLED = {"site-packages", "dist-packages"}


def _calls(error: BaseException) -> Iterator[TracebackType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def progress(error: BaseException, caller: str) -> tuple[int, ...]:
    """Return how far a call got until it raised an error; the larger of two tuples got further.

    It is the position in each function, from the outermost one.

    Args:
        caller: the file of the functions that made the call, which do not count.
    """
    return tuple(call.tb_lasti for call in _calls(error) if call.tb_frame.f_code.co_filename != caller)


def place_of(error: BaseException) -> str | None:
    """Return the last line of the user's code that an error has passed, such as "cell.py:58"; None without any.

    The module of a notebook's class is no file, so the line itself is returned.
    """
    for call in reversed(list(_calls(error))):
        code = call.tb_frame.f_code
        file = Path(code.co_filename)
        is_elsewhere = any(folder in file.parents for folder in _ELSEWHERE) or _INSTALLED & set(file.parts)
        if is_elsewhere or code.co_filename.startswith("<"):
            continue
        if not file.is_file():
            line = linecache.getline(code.co_filename, call.tb_lineno, call.tb_frame.f_globals).strip()
            return f"`{line}` in {code.co_qualname}"
        return f"{file.relative_to(Path.cwd()) if Path.cwd() in file.parents else file}:{call.tb_lineno}"
    return None


def lacks_gpu(error: BaseException) -> bool:
    """Return whether Triton raised an error on a machine without a GPU, where it says that it has no driver."""
    names = (call.tb_frame.f_globals.get("__name__", "") for call in _calls(error))
    return not torch.cuda.is_available() and any(str(name).split(".")[0] == "triton" for name in names)


def described(error: BaseException) -> str:
    """Return an error in one line, with its place in the user's code."""
    place = place_of(error)
    return one_line(error) if place is None else f"{place} raises {one_line(error)}"
