"""Write orthobench/nn/cells.py, the layers and cells of the built-in models: `make layers`."""

from __future__ import annotations

from pathlib import Path

from orthobench.plugins import Catalog

CELLS = Path(__file__).parents[1] / "orthobench" / "nn" / "cells.py"
TEXT = '''"""The layers and cells of the built-in models. `make layers` writes this file from the classes in models/."""

from __future__ import annotations

from orthobench.models import (
{modules})
from orthobench.nn.cell import RecurrentCell
from orthobench.nn.layer import RecurrentLayer

__all__ = [
{names}]
{classes}'''


def text() -> str:
    """Return the content of the file for the models of this checkout."""
    catalog = Catalog()
    classes = {name: catalog.load("model", name).__name__ for name in catalog.built_in("model")}
    names = sorted([*classes.values(), *(f"{name}Cell" for name in classes.values())], key=_rank)
    return TEXT.format(
        modules="".join(f"    {module},\n" for module in classes),
        names="".join(f'    "{name}",\n' for name in names),
        classes="".join(
            f"\n\nclass {name}{suffix}(Recurrent{suffix or 'Layer'}):\n    model = {module}.{name}\n"
            for module, name in classes.items()
            for suffix in ("", "Cell")
        ),
    )


def _rank(name: str) -> tuple[bool, str]:
    """Return the sort key of a name in `__all__` as ruff orders it: names in capitals first."""
    return not name.isupper(), name


if __name__ == "__main__":
    CELLS.write_text(text(), "utf-8")
