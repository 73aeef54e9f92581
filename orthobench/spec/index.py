"""The index: what follows from the code alone, for commands that need not load torch, which takes seconds.

The index describes the built-in plugins and their settings, and has the runs of the papers' experiments. It is the file
`index.json`, which `make index` writes and `make lint` compares with the classes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from orthobench.errors import UsageError
from orthobench.plugins import Plugin, PluginError
from orthobench.settings import describe_settings, text

FILE = Path(__file__).with_name("index.json")


@cache
def built_in() -> dict[str, Any]:
    """Return what is built in, as the index describes it.

    Returns:
        `plugins`: the description of each built-in plugin by "kind/name"; see `describe`.
        `training`: the descriptions of the settings of training.
        `variants`: the variants of the papers' experiments that can run, by the identity of the experiment.
        `specs`: the canonical forms of their runs with seed 0, also by the identity.
    """
    known: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    runs = known.pop("runs")
    return known | {f"{name}s": {identity: run[name] for identity, run in runs.items()} for name in ("variant", "spec")}


def description(plugin: Plugin) -> dict[str, Any]:
    """Return the description of a plugin: from the index if it is built in, else from its class."""
    known: dict[str, Any] | None = built_in()["plugins"].get(f"{plugin.kind}/{plugin.name}")
    return known if plugin.is_built_in and known is not None else describe(plugin)


def describe(plugin: Plugin) -> dict[str, Any]:
    """Load a plugin and return its title, papers, look, version, settings and presets; for a probe, when it measures.

    For a layer of another program, `layer` says how it is run and what cannot be measured.

    If the plugin cannot be loaded, `problem` is the reason, and the other entries are missing.
    """
    record: dict[str, Any] = {"kind": plugin.kind, "name": plugin.name, "origin": plugin.origin, "problem": None}
    try:
        cls = plugin.load()
    except PluginError as error:
        return record | {"problem": str(error)}
    record |= {"title": cls.title, "paper": getattr(cls, "paper", None)}
    if plugin.kind == "probe":
        return record | {"every_epochs": cls.every_epochs, "schedule": cls.schedule(), "default": cls.default}
    record |= {"cites": cls.cites, "version": cls.version}
    record |= {name: getattr(cls, name, "") for name in ("look", "family", "affine_fails")}
    record["state_matters"] = bool(getattr(cls, "state_matters", False))
    record["affine_if"] = None if getattr(cls, "affine_if", None) is None else dict(cls.affine_if)
    axis = getattr(cls, "second_axis", None)
    record["second_axis"] = (
        None if axis is None else [{name: text(each) for name, each in value.items()} for value in axis.values]
    )
    record |= {"settings": [asdict(setting) for setting in describe_settings(cls.Settings)]}
    if hasattr(cls, "measures"):
        try:
            record["layer"] = cls.measures()
        except UsageError as error:  # it needs other settings, or is wrong
            record["layer"] = [f"with its default settings it does not run: {error}"]
    if plugin.kind == "task":
        record["short_title"] = cls.short_title
        record["metrics"] = [metric.name for metric in cls.metrics]
    for preset in ("protocol", "quick") if plugin.kind == "task" else ():
        record[preset] = {setting: text(value) for setting, value in getattr(cls, preset).items()}
    return record
