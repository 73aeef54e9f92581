"""The pages of the Python API, whose content mkdocstrings takes from the docstrings."""

from __future__ import annotations

import orthobench
import orthobench.nn
from workshop.website.markdown import page

CONTRACT = {
    "Model": "orthobench.model",
    "ModelSettings": "orthobench.model",
    "Signature": "orthobench.model",
    "ParameterGroup": "orthobench.model",
    "Task": "orthobench.task",
    "Batch": "orthobench.task",
    "Split": "orthobench.task",
    "Stream": "orthobench.task",
    "Metric": "orthobench.metric",
    "Probe": "orthobench.probe",
    "ProbeContext": "orthobench.probe",
    "ProbeResult": "orthobench.probe",
    "Settings": "orthobench.settings",
    "recurrence": "orthobench.recurrence.ops.plain",
    "GradientTrace": "orthobench.recurrence",
}
"""The names that plugins use, with their modules."""


def api_pages() -> dict[str, str]:
    """Return the pages of the Python API by path."""
    names = [name for name in orthobench.__all__ if not name.startswith("__")]  # type: ignore[attr-defined] # hidden from mypy
    return {
        "api/index.md": page(
            "# orthobench",
            "What the command line does with runs. [The notebook page](../python.md) has examples.",
            *(f"::: {_owner(name)}" for name in names),
        ),
        "api/nn.md": page(
            "# orthobench.nn",
            "Every cell as a layer. [The page on layers](../layers.md) has examples, constraints and exports. "
            "Layers have the methods of `RecurrentLayer`, and cells those of `RecurrentCell`. Settings are on the "
            "page of the model.",
            "::: orthobench.nn.RecurrentLayer",
            "::: orthobench.nn.RecurrentCell",
            "::: orthobench.matrices.constrain.constrain",
            "::: orthobench.matrices.constrain.rebase",
            "\n".join(
                f"* `{name}`, `{name}Cell`: the model [`{_model(name)}`](../models/{_model(name)}.md)"
                for name in orthobench.nn.cells.LAYERS
                if not name.endswith("Cell")
            ),
        ),
        "api/plugins.md": page(
            "# The contract of plugins",
            "The bases and records of models, tasks and probes. [Extend](../extend.md) has examples.",
            *(f"::: {module}.{name}" for name, module in CONTRACT.items()),
        ),
        "api/testing.md": page(
            "# orthobench.testing",
            "The contract as checks, for the tests of your own plugins.",
            "::: orthobench.testing.problems",
        ),
    }


def _owner(name: str) -> str:
    """Return the full name of the object that the package exports under a name."""
    value = getattr(orthobench, name)
    return f"{value.__module__}.{value.__qualname__}"


def _model(layer: str) -> str:
    """Return the name of the model behind a layer."""
    return str(getattr(orthobench.nn, layer).model.__module__.rpartition(".")[2])
