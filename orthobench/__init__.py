"""orthobench: recurrent networks of the literature on the literature's tasks, one way, into one database.

    import orthobench as ob

    run = ob.run("adding", "scornn", preset="quick", hidden_size=64)

The names of `orthobench.api` are available here. They are imported on first use, so that `import orthobench` is fast.
The import changes nothing in the process except that it lets idle threads sleep, if torch is not imported yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orthobench import api
from orthobench.system.cores import quiet_idle_threads
from orthobench.version import __version__ as __version__

quiet_idle_threads()

if TYPE_CHECKING:
    from orthobench.api import *  # noqa: F403

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports names that do not exist
    __all__ = sorted({"__version__", *api.__all__})

    def __getattr__(name: str) -> Any:
        if name in api.__all__:
            return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
