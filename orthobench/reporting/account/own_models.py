"""What the page of the user's own models needs to know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orthobench.analysis.conditions import Condition
from orthobench.analysis.inference import seeds_of_ranking
from orthobench.analysis.own_code import own_code
from orthobench.errors import counted
from orthobench.plugins.layers import is_layer
from orthobench.reporting.account.names import NO_LABELS, name_of

RIVALS = 5
"""The most models next to which a model is shown."""
NONE_EARLIER: Mapping[str, int] = {}


def own_models(
    conditions: Sequence[Condition],
    labels: Mapping[str, str] = NO_LABELS,
    earlier: Mapping[str, int] = NONE_EARLIER,
) -> dict[str, Any]:
    """Return the models of the user's own code, that of the last run first, and what is said about all models.

    Args:
        labels: the user's names of models, by their stored names.
        earlier: how many runs of earlier versions are left out, by model.
    """
    runs = [run for condition in conditions for variant in condition.variants for run in variant.runs]
    last_first = sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True)
    found = [(run.model, code) for run in last_first if (code := own_code(run)) is not None]
    plugins = {model: code["path"] for model, code in found if not is_layer(model) and code.get("path")}
    return {
        "own": list(dict.fromkeys(model for model, _ in found)),
        "plugins": plugins,
        "names": {model: name_of(model, labels) for model in sorted({run.model for run in runs})},
        "earlier": {model: words_of_earlier({model: count}, labels) for model, count in earlier.items()},
        "deciding": [seeds_of_ranking(rivals + 1) for rivals in range(1, RIVALS + 1)],
    }


def words_of_earlier(earlier: Mapping[str, int], labels: Mapping[str, str] = NO_LABELS) -> str:
    """Return how many runs of earlier versions are left out, as in "Ours: 3 runs"; "" if none is."""
    return ", ".join(f"{name_of(model, labels)}: {counted(count, 'run')}" for model, count in earlier.items())
