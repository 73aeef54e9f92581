"""The output of the program, and the progress of runs and downloads on terminals and in notebooks.

The names below are imported on first use, because those of `progress` load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orthobench.display.console import Console as Console
    from orthobench.display.console import Table as Table
    from orthobench.display.console import Text as Text
    from orthobench.display.output import lasting_output as lasting_output
    from orthobench.display.output import print_json as print_json
    from orthobench.display.progress import Downloads as Downloads
    from orthobench.display.progress import busy as busy

NAMES = {
    "console": ("Console", "Table", "Text"),
    "output": ("lasting_output", "print_json"),
    "progress": ("Downloads", "busy"),
}
"""The names by the module that defines them."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports names that do not exist

    def __getattr__(name: str) -> Any:
        for module, names in NAMES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
