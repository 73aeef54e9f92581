"""The program `orthobench`, also as `python -m orthobench`: a process with its streams, and the last errors.

The command line (`orthobench.cli`) parses and prints. What any program has to do around that is here.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from pathlib import Path

from orthobench.errors import traceback_text
from orthobench.system.files import storage_error
from orthobench.system.output import harmless_output, open_closed_streams
from orthobench.system.own_code import described
from orthobench.system.signals import stop_while_torch_is_loaded

SPELLED = "orthobench.spelled"
"""The name of the error handler for characters that an encoding lacks."""
SPELLINGS = {"±": "+-", "–": "-", "—": "-", "…": "...", "×": "x", "≤": "<=", "≥": ">=", "→": "->", "‖": "||"}
"""Symbols in tables and their ASCII spellings; any other character that an encoding lacks becomes a question mark."""


def _spell(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(SPELLINGS.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error(SPELLED, _spell)


def main() -> None:
    """Run the command line, and end this process with its exit code; what no command expects gets one line and 1."""
    open_closed_streams()
    for name in [name for name in os.environ if name.startswith("ORTHOBENCH_")]:
        # Files of variables (.env) that were written on Windows leave line ends to Docker, systemd and shells.
        os.environ[name] = os.environ[name].strip()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the encoding lacks must not end a command
            stream.reconfigure(errors=SPELLED)
    stop_while_torch_is_loaded()
    with harmless_output():
        sys.exit(_exit_code())


def _exit_code() -> int:
    try:
        # Here, because Ctrl-C while it loads should print no traceback.
        from orthobench.cli import main as command_line

        return command_line()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BaseException as error:  # a layer may exit or raise anything, and Python would print its text as it is
        # typer turns the error of a closed pipe into an exit.
        if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
            return _without_reader()
        if isinstance(error, SystemExit) and "_ORTHOBENCH_COMPLETE" in os.environ:  # the end of a completion
            raise
        return _unexpected(error)


def _without_reader() -> int:
    """End as a program ends whose output nobody reads any more, such as `orthobench ls | head`."""
    # Python flushes the standard streams at its end, which would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]
    return 141


def _unexpected(error: BaseException) -> int:
    """Print an error in one line, after its calls with `-v`."""
    is_verbose = sys.argv[1:2] in (["-v"], ["--verbose"])
    if is_verbose:
        print(traceback_text(), file=sys.stderr)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        name = max(Path(str(error.filename)).parts, key=len)
        print(f"error: the name of a file or folder is too long, {name:.20}...: choose a shorter one", file=sys.stderr)
        return 2
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
        print(f"error: {storage_error('the output', error)}", file=sys.stderr)
        return 2
    print(f"error: {described(error)}{'' if is_verbose else ' (orthobench -v shows the calls)'}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
