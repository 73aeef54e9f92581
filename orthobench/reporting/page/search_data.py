"""The record of a search as JSON, from which the page draws parallel coordinates, slices and importance."""

from __future__ import annotations

from typing import Any

from orthobench.analysis.searches import SearchData, is_wide


def search_record(search: SearchData) -> dict[str, Any]:
    """Return the axes and trials of a search, the best trial first; trials without a value have rank 0 and come last.

    An axis has the range of a number or the choices of a text setting; trials have positions from 0 to 1 on it.
    """
    ranked = search.ranked
    others = [trial for trial in search.trials if trial.value is None]
    ordered = [*ranked, *others]
    axes = [_axis(name, [trial.settings.get(name, "") for trial in ordered]) for name in search.names]
    return {
        "key": search.key,
        "model": search.model,
        "condition": search.condition.key,
        "metric": search.condition.metric.name,
        "goal": search.condition.metric.goal,
        "split": search.split,
        "axes": axes,
        "importance": search.importance,
        "trials": [
            {
                "number": trial.number,
                "run": trial.run.key,
                "rank": rank if trial.value is not None else 0,
                "value": trial.value,
                "status": trial.run.status,
                "settings": [trial.settings.get(name, "") for name in search.names],
            }
            for rank, trial in enumerate(ordered, 1)
        ],
    }


def _axis(name: str, texts: list[str]) -> dict[str, Any]:
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return {"name": name, "choices": sorted(set(texts))}
    return {"name": name, "low": min(values), "high": max(values), "log": is_wide(values)}
