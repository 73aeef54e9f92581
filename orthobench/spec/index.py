"""The index: what follows from the code alone, for commands that need not load torch, which takes seconds.

The index describes the built-in plugins and their settings, and has the runs of the papers' experiments. Another
process computes it once, and a file in the user's cache folder keeps it under the hash of the code.

A file counts only if it is whole and belongs to the present code, and if no other user could have written it. Without
a cache folder, everything is computed again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from orthobench.errors import StorageError, UsageError
from orthobench.papers import papers
from orthobench.plugins import Catalog, Plugin, PluginError
from orthobench.settings import describe_settings, text
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.system import files
from orthobench.system.cache import UntrustedError, cache_folder, open_trusted, private_folder

PACKAGES = ("orthobench", "orthobench.models", "orthobench.tasks", "orthobench.probes")
SOURCES = (".py", ".toml")
"""Suffixes of the files on which the index depends: code and the records of the papers."""
UNUSED_SECONDS = 30 * 24 * 3600
"""Time without a new file after which the files of other code are removed."""


@cache
def index() -> dict[str, Any]:
    """Return the index.

    Returns:
        `plugins`: the description of each built-in plugin by "kind/name"; see `describe`.
        `training`: the descriptions of the settings of training.
        `variants`: the variants of the papers' experiments that can run, by the identity of the experiment.
        `specs`: the canonical forms of their runs with seed 0, also by the identity.
    """
    if "torch" in sys.modules:  # then it takes less than a second
        return compute()
    known: dict[str, Any] | None = read_kept("index")
    if known is None:
        known = _computed_elsewhere()
        keep("index", known)
    return known


def compute() -> dict[str, Any]:
    """Compute the index from the classes of the plugins."""
    from orthobench.task import TrainingSettings  # here, because it loads torch, which the index spares its readers

    # Without installed packages: the code's hash does not cover them, and one with a name that is taken is an error.
    built_in = Catalog(installed=False)
    configs, _ = experiment_runs(built_in)
    return {
        "plugins": {f"{plugin.kind}/{plugin.name}": describe(plugin) for plugin in built_in},
        "training": [asdict(setting) for setting in describe_settings(TrainingSettings)],
        "variants": {identity: config.spec.variant for identity, config in configs.items()},
        "specs": {identity: asdict(config.spec) for identity, config in configs.items()},
    }


def _computed_elsewhere() -> dict[str, Any]:
    """Compute the index in another process, or in this one if the other process cannot start or fails."""
    try:
        computed: dict[str, Any] = answer_of(__name__)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return compute()
    return computed


def answer_of(module: str, question: Any = None) -> Any:
    """Return what a module of the package prints as JSON in another process, which gets the question as JSON.

    Raises:
        OSError, ValueError, subprocess.CalledProcessError: the process cannot start, or it fails.
    """
    # With -P, because -m would search the user's folder first, where a file may be called json.py.
    command = [sys.executable, "-P", "-m", module]
    done = subprocess.run(
        command, input=json.dumps(question), capture_output=True, text=True, encoding="utf-8", check=True
    )
    return json.loads(done.stdout)


def description(plugin: Plugin) -> dict[str, Any]:
    """Return the description of a plugin: from the index if it is built in, else from its class."""
    known: dict[str, Any] | None = index()["plugins"].get(f"{plugin.kind}/{plugin.name}")
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
    record |= {"settings": [asdict(setting) for setting in describe_settings(cls.Settings)]}
    if hasattr(cls, "measures"):
        try:
            record["layer"] = cls.measures()
        except UsageError as error:  # it needs settings
            record["layer"] = [str(error)]
    for preset in ("protocol", "quick") if plugin.kind == "task" else ():
        record[preset] = {setting: text(value) for setting, value in getattr(cls, preset).items()}
    return record


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


@cache
def code_hash() -> str:
    """Return the hash of the package's code."""
    folders = {Path(path) for name in PACKAGES for path in importlib.import_module(name).__path__}
    files = {file for folder in folders for file in folder.rglob("*") if file.suffix in SOURCES}
    total = hashlib.sha256()
    for file in sorted(files):
        # With its name, because a plugin is named after its file.
        total.update(f"{file}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _file(name: str) -> Path:
    """Return the file of a value that follows from the present code."""
    return cache_folder() / "index" / code_hash()[:16] / f"{name}.json"


def _seal(name: str, content: bytes) -> bytes:
    """Return the first line of a file, by which damage and other code are recognised."""
    return hashlib.sha256(f"{code_hash()} {name}\n".encode() + content).hexdigest().encode() + b"\n"


def read_kept(name: str) -> Any:
    """Return a value that an earlier process has kept; None if there is none, or if its file cannot be trusted."""
    try:
        with open_trusted(_file(name)) as stream:
            content = stream.read()
    except (OSError, RuntimeError, UntrustedError):  # RuntimeError: no home folder
        return None
    seal, _, value = content.partition(b"\n")
    return json.loads(value) if seal + b"\n" == _seal(name, value) else None


def keep(name: str, value: Any) -> None:
    """Keep a JSON value for later processes with the same code, if the cache folder can be used."""
    content = json.dumps(value).encode()
    with suppress(OSError, RuntimeError, StorageError):  # without a cache, the next process only takes longer
        file = _file(name)
        if not file.parent.is_dir():
            _remove_unused(file.parents[1])
            private_folder(file.parent)
        files.write_bytes(file, _seal(name, content) + content, private=True)


def _remove_unused(folder: Path) -> None:
    """Remove the files of other code that no process has added to for a month."""
    for other in folder.glob("*"):
        if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


if __name__ == "__main__":
    print(json.dumps(compute()))
