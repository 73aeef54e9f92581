"""What can be trained, as JSON values: plugins, settings, studies, files of sweeps.

It loads no torch for what is built in, because the index describes that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from orthobench.arrays.words import is_own_data
from orthobench.errors import MissingDataError, UsageError, unknown
from orthobench.papers import find_paper as find_paper
from orthobench.papers import studies as known_studies
from orthobench.papers.usage import paper_values
from orthobench.planning.file import sweep_schema as sweep_schema
from orthobench.plugins import Catalog, Plugin
from orthobench.plugins.layers import ADAPTER as ADAPTER
from orthobench.spec.index import built_in, description


def settings_of(words: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of training, and of the tasks and models among the words, each with its description."""
    plugins = built_in()["plugins"]
    groups = [plugins.get(f"{kind}/{word}", {}).get("settings", ()) for word in words for kind in ("task", "model")]
    return {setting["name"]: setting for group in (built_in()["training"], *groups) for setting in group}


def studies() -> list[dict[str, str]]:
    """Return the studies of the papers."""
    return [
        {"name": study.name, "title": study.title, "paper": study.source, "figure": study.figure}
        for study in known_studies()
    ]


def printed_sizes(files: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Return the models' parameter counts that papers print, each with the count of the model here."""
    # Here, because it loads torch, for which the other descriptions need not wait.
    from orthobench.planning.printed_sizes import count_printed_sizes

    counts = count_printed_sizes(Catalog(files))
    return [each.size.model_dump() | {"count": each.count, "agrees": each.agrees} for each in counts]


def list_plugins(files: Sequence[Path] = (), name: str | None = None, check: bool = False) -> list[dict[str, Any]]:
    """Return a record of each task, model and probe, or of those with a name; `problem` says why one cannot be used.

    Args:
        files: files with more plugins.
        name: restrict to plugins with this name, also as "model/lstm".
        check: test the plugins against their contract; `unchecked` says what is missing for that.

    Raises:
        UsageError: no plugin has this name, or a file to check has no plugin.
    """
    catalog = Catalog(files)
    origins = {entry.origin for entry in catalog}
    if check and (file := next((own.path for own in catalog.files if own.path not in origins), None)):
        raise UsageError(
            f"{file} defines layers and no plugin, so there is no contract to check: "
            f"`orthobench plugins {file}:CLASS` tries a layer"
        )

    def is_named(entry: Plugin) -> bool:
        return name in (None, entry.name, f"{entry.kind}/{entry.name}")

    listed = [_listed(entry, check) for entry in catalog if is_named(entry)]
    for entry, reason in catalog.broken:
        if is_named(entry):
            listed.append({"kind": entry.kind, "name": entry.name, "origin": entry.origin, "problem": reason})
    if name and not listed:
        raise unknown("task, model or probe", name, {entry.name for entry in catalog})
    return listed


def _listed(entry: Plugin, check: bool) -> dict[str, Any]:
    """Return the record of a plugin for the list, with the reason if it cannot be used."""
    known = description(entry)
    record = {
        name: value for name, value in known.items() if name not in ("paper", "cites", "look", "protocol", "quick")
    }
    if "settings" in record:
        record["settings"] = sorted(setting["name"] for setting in record["settings"])
    if check and not record["problem"]:
        # Here, because it loads torch.
        from orthobench.testing import problems

        try:
            record["problem"] = _joined(problems(entry.kind, entry.load())) or None
        except MissingDataError as error:
            record["unchecked"] = str(error)
    return record


def _joined(failures: list[str]) -> str:
    """Return the failures of checks as one text, in which checks that fail for the same reason share it."""
    by_reason: dict[str, list[str]] = {}
    for check, _, reason in (failure.partition(": ") for failure in failures):
        by_reason.setdefault(reason, []).append(check)
    parts = []
    for reason, (first, *others) in by_reason.items():
        more = f" and {len(others)} other check{'s' * (len(others) > 1)}" if others else ""
        parts.append(f"{first}{more}: {reason}")
    return "; ".join(parts)


def explain(name: str, files: Sequence[Path] = ()) -> dict[str, Any]:
    """Describe a task, model, probe or `training`, with its settings.

    Raises:
        UsageError: no plugin has this name, several kinds have it, or the plugin cannot be loaded.
    """
    if name == "training":
        settings = _with_papers(built_in()["training"], "training", "")
        return {"kind": name, "name": name, "title": "settings of training, the same for all models"} | {
            "settings": settings
        }
    catalog = Catalog(files)
    entry = catalog.find_any(name)
    record = description(entry)
    if record["problem"]:
        catalog.load(entry.kind, entry.name)  # raises the error
    if entry.kind == "probe":
        return record
    if entry.kind == "model" and not entry.is_built_in:
        # Here, because it loads torch, as the layer does.
        from orthobench.bench.before_training import diagnose
        from orthobench.spec.resolve import left_to_protocol

        model = catalog.load("model", entry.name)
        record |= {"diagnosis": diagnose(model, catalog.load("model", "lstm"))}
        for setting in record["settings"]:
            if setting["name"] in left_to_protocol(model.Settings):
                setting["meaning"] += "; if the task's protocol names one, that is the default"
    if is_own_data(entry.name):
        own = catalog.load("task", entry.name)
        record |= {"data": own.remark(own.Settings.read({}))}
    return record | {"settings": _with_papers(record["settings"], entry.kind, entry.name)}


def _with_papers(
    settings: list[dict[str, Any]], kind: Literal["task", "model", "training"], name: str
) -> list[dict[str, Any]]:
    """Return the descriptions of settings, each with the values that papers used."""
    used = paper_values(kind, name)
    return [setting | {"papers": [asdict(value) for value in used.get(setting["name"], ())]} for setting in settings]
