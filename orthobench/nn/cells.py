"""The layers and cells of the built-in models, such as `LSTM` and `LSTMCell`; `cells.pyi` lists their names."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

import orthobench.models
from orthobench.model import Model
from orthobench.nn.cell import RecurrentCell
from orthobench.nn.layer import RecurrentLayer


def _models() -> list[type[Model]]:
    """Return the classes of the built-in models. Each file has one that is not abstract."""
    names = [module.name for module in pkgutil.iter_modules(orthobench.models.__path__) if module.name[0] != "_"]
    modules = [import_module(f"orthobench.models.{name}") for name in names]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Model) and value.__module__ == module.__name__
        if not inspect.isabstract(value)
    ]


LAYERS: dict[str, type[RecurrentLayer]] = {
    name: type(name, (base,), {"__module__": __name__, "model": model})
    for model in _models()
    for name, base in ((model.__name__, RecurrentLayer), (f"{model.__name__}Cell", RecurrentCell))
}
"""The layers and cells by name. Each is also an attribute of this module."""

globals().update(LAYERS)
__all__ = list(LAYERS)
