"""The options that name models for people, and that show earlier versions of the user's own code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from orthobench import api
from orthobench.errors import UsageError

Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="MODEL=LABEL",
        help="Name a model on the page, in tables and in figures, as in cell.py:MyCell=Ours; may be repeated.",
    ),
]
AllVersions = Annotated[
    bool,
    typer.Option("--all-versions", help="Show the runs of earlier versions of your own code, too."),
]


def read_labels(assignments: Sequence[str] | None) -> dict[str, str]:
    """Return the labels in texts such as "cell.py:MyCell=Ours", by the model.

    Raises:
        UsageError: a text has no model or no label, or a model has two labels.
    """
    labels: dict[str, str] = {}
    for text in assignments or ():
        model, _, label = (part.strip() for part in text.partition("="))
        model = api.names.without_folder(model)
        if not model or not label:
            raise UsageError(f"the label '{text}' should be a model and its label, such as 'cell.py:MyCell=Ours'")
        if labels.setdefault(model, label) != label:
            raise UsageError(f"{model} has two labels, '{labels[model]}' and '{label}': give one")
    return labels
