"""Models of the user's own code, which may change from run to run, and the runs of their newest version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orthobench.store import Run


def own_code(run: Run) -> Mapping[str, Any] | None:
    """Return where a run's model is from, if that is a file, a notebook or a module of the user's, not a package.

    It is the entry of the model's code in the environment, with its `path`, if it has one.
    """
    _, _, revision = run.spec["model_version"].partition("+")
    plugins = run.environment.facts.get("plugins", ()) if revision else ()
    own = (plugin for plugin in plugins if plugin["revision"] == revision.partition(".")[0])
    return next((plugin for plugin in own if plugin.get("distribution") is None), None)


def newest_versions(runs: Sequence[Run]) -> tuple[list[Run], dict[str, int]]:
    """Return the runs without those of earlier versions of own code, and how many of each model these are.

    The newest version of a model is that of the run which began last.
    """
    own = [run for run in runs if own_code(run) is not None]
    newest = {run.model: run.spec["model_version"] for run in sorted(own, key=lambda run: (run.created_at, run.id))}
    earlier = {run.id: run.model for run in own if run.spec["model_version"] != newest[run.model]}
    return [run for run in runs if run.id not in earlier], dict(Counter(earlier.values()))
