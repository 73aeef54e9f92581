"""Models of the user's own code, which may change from run to run, and the runs of their newest version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orthobench.store import Run


def is_own_code(run: Run) -> bool:
    """Return whether a run's model is from a file, a notebook or a module of the user's, not from a package."""
    _, _, revision = run.spec["model_version"].partition("+")
    plugins = run.environment.facts.get("plugins", ()) if revision else ()
    return any(
        plugin["revision"] == revision.partition(".")[0] and plugin.get("distribution") is None for plugin in plugins
    )


def newest_versions(runs: Sequence[Run]) -> tuple[list[Run], dict[str, int]]:
    """Return the runs without those of earlier versions of own code, and how many of each model these are.

    The newest version of a model is that of the run which began last.
    """
    own = [run for run in runs if is_own_code(run)]
    newest = {run.model: run.spec["model_version"] for run in sorted(own, key=lambda run: (run.created_at, run.id))}
    earlier = {run.id: run.model for run in own if run.spec["model_version"] != newest[run.model]}
    return [run for run in runs if run.id not in earlier], dict(Counter(earlier.values()))
