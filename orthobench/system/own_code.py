"""Where an error was raised in the user's own code, as opposed to that of Python and of installed packages."""

from __future__ import annotations

import functools
import linecache
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from orthobench.errors import first_line, one_line

_ELSEWHERE = (Path(__file__).parents[1], Path(sysconfig.get_path("stdlib")))
"""The folders of orthobench and of Python."""
_INSTALLED = {"site-packages", "dist-packages"}


def calls(error: BaseException) -> Iterator[TracebackType]:
    """Yield the calls that an error has passed, from the outermost one."""
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _own_call(error: BaseException) -> TracebackType | None:
    """Return the last call in the user's code that an error has passed, or None.

    The module of a notebook's class is no file, and its lines are known all the same.
    """
    for call in reversed(list(calls(error))):
        code = call.tb_frame.f_code
        file = Path(code.co_filename)
        if not _is_elsewhere(file) and not code.co_filename.startswith("<") and (file.is_file() or _line(call)):
            return call
    return None


def is_own_class(cls: type) -> bool:
    """Return whether a class is of the user's own code, or a container of attributes of Python's."""
    return cls.__module__ in ("types", "argparse") or _is_own_module(cls.__module__)


@functools.cache
def _is_own_module(name: str) -> bool:
    module = sys.modules.get(name)
    if module is None or name in sys.builtin_module_names:
        return False
    file = getattr(module, "__file__", None)  # none of a notebook
    return file is None or not _is_elsewhere(Path(file))


def _is_elsewhere(file: Path) -> bool:
    return any(folder in file.parents for folder in _ELSEWHERE) or bool(_INSTALLED & set(file.parts))


def _line(call: TracebackType) -> str:
    return linecache.getline(call.tb_frame.f_code.co_filename, call.tb_lineno, call.tb_frame.f_globals).strip()


def place_of(error: BaseException) -> str | None:
    """Return the last line of the user's code that an error has passed, such as "cell.py:58"; None without any.

    Without a file the line itself is returned.
    """
    if (call := _own_call(error)) is None:
        return None
    code = call.tb_frame.f_code
    file = Path(code.co_filename)
    return f"{_shown(file)}:{call.tb_lineno}" if file.is_file() else f"`{_line(call)}` in {code.co_qualname}"


def quoted_line(error: BaseException) -> str | None:
    """Return that line with its text, such as "cell.py:58: return torch.softmax(h, -1)"; None without any."""
    call, place = _own_call(error), place_of(error)
    return place if call is None or place is None or place.startswith("`") else f"{place}: {_line(call)}"


def _shown(file: Path) -> str:
    """Return a file below the current folder with its folders in there, and any other one by its name.

    Results are published and should name no folder of the user's home. An error must not be replaced by another one, if
    there is no current folder or no home.
    """
    try:
        here, home = Path.cwd(), Path.home()
    except (OSError, RuntimeError):
        return file.name
    is_inside = here in file.parents and here not in (home, *home.parents)
    return str(file.relative_to(here)) if is_inside else file.name


def described(error: BaseException) -> str:
    """Return an error in one line, with its place in the user's code."""
    place = place_of(error)
    return one_line(error) if place is None else f"{place} raises {one_line(error)}"


def message_of(error: BaseException) -> str:
    """Return the first line of an error's message, with its place in the user's code."""
    said, place = first_line(error) or type(error).__name__, place_of(error)
    return said if place is None else f"{said} ({place})"
