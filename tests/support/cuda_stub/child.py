"""Run a program on the stub and end its process at once: `-c CODE [ARGUMENT ...]`, `-m MODULE ...` or `FILE ...`.

Autograd's thread of the device may ask for the interpreter's lock while Python shuts down, which aborts the process.
So after success the process ends without a shutdown. A program that fails ends as usual.
"""

import atexit
import os
import runpy
import sys


def run(kind: str, *arguments: str) -> None:
    """Run the program as Python itself would; a SystemExit without an error counts as its end."""
    sys.path[0] = ""
    try:
        if kind == "-c":
            code, *rest = arguments
            sys.argv = ["-c", *rest]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        elif kind == "-m":
            sys.argv = list(arguments)
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [kind, *arguments]
            runpy.run_path(kind, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


if __name__ == "__main__":
    run(*sys.argv[1:])
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
