"""Errors whose message is one line for the user: the problem, then the fix."""

from __future__ import annotations

import difflib
import re
import shlex
import traceback
from collections.abc import Iterable

_PASSWORD = re.compile(r"(://[^\s:/]*:)[^\s@]*(?:@[^\s@?]*)*(?=@)")
"""The password before the host of a URL, also one with an unescaped @."""
_SECRET = re.compile(
    r"([?&](?:[\w.-]*(?:passw|passphrase|pwd|secret|token|credential)[\w.-]*|scram_\w+_key|odbc_connect)=)"
    r"[^\s&]*",
    re.IGNORECASE,
)
"""A secret in the query of a URL, such as `?password=` and `&sslpassword=`."""
_LETTER = r"""(?:[^\s/\\'"<>|:~]|(?<=\w)['"~:](?=\w))"""
_PATH = re.compile(
    r"(?:\b(?i:file|sqlite[\w+]*):/+(?:[A-Za-z]:/)?|(?<!\w)[A-Za-z]:[\\/]+|\\\\+(?:\?\\+(?:[A-Za-z]:\\+)?)?"
    r"|(?<![\w.~:/\]-])//|(?<![\w.~/\]-])(?:~[\w.-]*)?/(?!/))"
    rf"(?:{_LETTER}(?:(?:{_LETTER}|[ \t])*{_LETTER})?[\\/]+)+({_LETTER}+)[\\/]*"
)
"""An absolute path of a file or folder that is in another folder, with its name: also of Windows, or as a URL.

A folder may have spaces in its name, so the words between such a path and a relative one are taken for a folder's.
"""


def without_passwords(text: str) -> str:
    """Return a text with *** in place of every password of a URL.

    Every database location that is printed or stored passes through this function.
    """
    return _SECRET.sub(r"\1***", _PASSWORD.sub(r"\1***", text))


def without_folders(text: str) -> str:
    """Return a text with the names of files in place of their absolute paths, for others to read."""
    return _PATH.sub(r"\1", text)


def traceback_text() -> str:
    """Return the traceback of the exception that is being handled, without passwords."""
    return without_passwords(traceback.format_exc())


def shell_command(*words: object) -> str:
    """Return an orthobench command for the user's shell, with quotes where necessary."""
    return shlex.join(["orthobench", *map(str, words)])


def one_line(error: BaseException) -> str:
    """Return an error's class and the first line of its message, without passwords."""
    return without_passwords(": ".join(filter(None, (type(error).__name__, first_line(error)))))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that has text; "" without any.

    Characters that a database refuses are written out: halves of pairs, as file names that are not UTF-8 have them, and
    the zero byte.
    """
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return line.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class OrthobenchError(Exception):
    """Base of the errors that the command line prints as one line, with exit code 2. Passwords are masked.

    A notebook shows them as one line too, and the traceback if it is asked for it by `%tb`.
    """

    _was_shown = False

    def __init__(self, message: str = "") -> None:
        super().__init__(without_passwords(message))

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows: the message at first, and the traceback from then on."""
        if self._was_shown:
            return "".join(traceback.format_exception(self)).splitlines()
        self._was_shown = True
        return [f"{type(self).__name__}: {self}"]


class UsageError(OrthobenchError):
    """Bad input: a wrong setting, name, file or combination of options."""


class NoMatchError(UsageError):
    """Nothing meets the conditions."""


class UpdateRefusedError(OrthobenchError):
    """The new values of a baseline are incomplete: a seed has no value of a metric."""


class MissingDataError(UsageError):
    """A data set is missing; the message names the command that fetches it."""


class RunLockedError(OrthobenchError):
    """Another process is training this run."""


class StorageError(OrthobenchError):
    """A file or database cannot be written; the run stops, and the same command resumes it from its checkpoint."""


class DamagedError(StorageError):
    """A database is damaged; after the user has restored a backup, the same command continues from there.

    Attributes:
        problem: what is wrong with it, without the fix.
    """

    problem = ""


def installation(extra: str) -> str:
    """Return the command that installs the packages of an extra of `pyproject.toml`."""
    return f"pip install -e '.[{extra}]' in the checkout"


def needs_extra(user: str, packages: str, extra: str) -> UsageError:
    """Return the error for a feature whose packages are not installed, with the command that installs them.

    Args:
        user: the feature, such as "speech" or "executor=ray".
        packages: what it needs.
        extra: the extra of `pyproject.toml` with these packages.
    """
    return UsageError(f"{user} needs {packages}: {installation(extra)}")


def unknown(kind: str, word: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name, with the nearest known names, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(str(word), names, n=2, cutoff=0.6)  # str, because a key of a dict may be a number
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
    return UsageError(f"unknown {kind} '{word}': {hint}")


def shown(value: object) -> str:
    """Return the beginning of a value's repr in one line, because that of an array or a table has many."""
    return " ".join(repr(value).split())[:80]


def wrong_value(owner: object, method: str, value: object, wanted: str) -> TypeError:
    """Return the error for what a method of a plugin has returned: "Parity.loss returned None: return a tensor"."""
    return TypeError(f"{type(owner).__name__}.{method} returned {shown(value)}: return {wanted}")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 run" or "3 runs"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error says that memory could not be allocated, on the CPU or a GPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # the latter is torch's
        return True
    texts = "can't allocate memory", "Storage size calculation overflowed"
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
