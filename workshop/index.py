"""Write orthobench/spec/index.json, the index of the built-in plugins and the papers' runs: `make index`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from orthobench.errors import UsageError
from orthobench.papers import papers
from orthobench.plugins import Catalog
from orthobench.settings import describe_settings
from orthobench.spec.index import FILE, describe
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.task import TrainingSettings


def text() -> str:
    """Return the content of the file for the code of this checkout, with one line for each plugin and run."""
    catalog = Catalog(installed=False)
    configs, _ = experiment_runs(catalog)
    parts: dict[str, dict[str, Any] | list[Any]] = {
        "plugins": {f"{plugin.kind}/{plugin.name}": describe(plugin) for plugin in catalog},
        "training": [asdict(setting) for setting in describe_settings(TrainingSettings)],
        "runs": {
            identity: {"variant": config.spec.variant, "spec": asdict(config.spec)}
            for identity, config in configs.items()
        },
    }
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_lines(part)}" for name, part in parts.items()) + "\n}\n"


def _lines(part: dict[str, Any] | list[Any]) -> str:
    """Return a part as JSON with one line for each entry, so that a change shows what it changes."""
    if isinstance(part, list):
        return "[\n" + ",\n".join(map(json.dumps, part)) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in part.items()) + "\n}"


def experiment_runs(catalog: Catalog) -> tuple[dict[str, RunConfig], dict[str, str]]:
    """Return a run of each paper's experiment, and why the other experiments cannot run, by their identities."""
    configs, reasons = {}, {}
    for paper in papers():
        for experiment in paper.experiments():
            try:
                config = resolve(catalog, experiment.task, experiment.model, {}, experiment=experiment)
            except UsageError as error:
                reasons[experiment.identity] = str(error)
            else:
                configs[experiment.identity] = config
    return configs, reasons


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
