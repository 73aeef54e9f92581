"""The commands that train a stored run again, or more seeds of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from orthobench.analysis.variants import group
from orthobench.arrays.words import word_of
from orthobench.errors import OrthobenchError, UsageError, shell_command
from orthobench.options.arguments import Preset
from orthobench.options.seeds import more_seeds
from orthobench.papers import experiments
from orthobench.plugins import Catalog
from orthobench.plugins.sources import hash_of
from orthobench.settings import merged_settings, text
from orthobench.spec.resolve import default_preset, resolve
from orthobench.store import Run, Status
from orthobench.store.sqlite import database_words
from orthobench.system.location import Location

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast
    from orthobench.planning.search import TuningResult

SEEDS = 5
"""The number of seeds in the command that trains the best trial of a search."""


def command_of(db: Location, run: Run, seeds: str | None = None) -> str:
    """Return the commands that repeat a run in this folder, or train these seeds of its variant.

    If one of its plugin files is not here, or has changed since then, the first command writes them to a new folder.
    """
    own = [plugin for plugin in run.environment.facts.get("plugins", ()) if "path" in plugin]
    own = [plugin for plugin in own if ".py:" in plugin.get("layer", ".py:")]  # not of a module or notebook
    if seeds is not None and not run.environment.facts.get("plugins") and (short := _short_words(run)) is not None:
        return shell_command("sweep", run.task, "--models", run.model, *short, "--seeds", seeds)
    if all(_is_here(plugin) for plugin in own):
        return reproduce(run.spec, [plugin["path"] for plugin in own], seeds)
    folder = f"plugins-{run.key}"
    words = database_words(db, writes=False)
    save = shell_command("show", run.key, "--save-plugins", folder, *words)
    saved = [f"{folder}/{next(iter(plugin['files']))}" for plugin in own]
    return f"{save} && {reproduce(run.spec, saved, seeds)}"


def deciding(contrasts: Sequence[Contrast], db: Location) -> list[str]:
    """Return the commands that add the seeds which would decide contrasts, one for each variant that has fewer."""
    words = shlex.join(database_words(db, writes=True))
    commands = {}
    for contrast in contrasts:
        if contrast.deciding is None:
            continue
        for runs in group([*contrast.first.runs, *contrast.second.runs], lambda run: run.variant):
            seeds = [run.seed for run in runs if Status(run.status).is_final]
            if len(seeds) < contrast.deciding:
                more = more_seeds(seeds, contrast.deciding) if seeds else str(contrast.deciding)
                commands[runs[0].variant] = f"{command_of(db, runs[0], more)} {words}".rstrip()
    return list(commands.values())


def best_command(result: TuningResult, data_folder: Path | None, db: Location) -> str:
    """Return the command that trains the best trial of a search with more seeds; "" without a finished trial."""
    if result.best is None:
        return ""
    search = result.tuning.search
    words = ["sweep", search.catalog.task_word(search.task), "--models", search.catalog.word(search.model)]
    settings = search.overrides | result.best.settings
    words += [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    default = default_preset(search.catalog, search.task, [search.model])
    words += ["--preset", search.preset] if search.preset != default else []
    words += [word for file in search.catalog.files for word in ("--plugin", file.path)]
    words += [] if data_folder is None else ["--data-dir", str(data_folder)]
    return shell_command(*words, *database_words(db, writes=True), "--seeds", SEEDS)


def _short_words(run: Run) -> list[str] | None:
    """Return the preset and the settings other than its own with which a command means this run today; None if none.

    Its own preset goes before a shorter command, because runs are stored with the preset that their command names.
    """
    catalog, settings = Catalog(), merged_settings(run.spec)
    found: dict[str, list[str]] = {}

    def is_enough(given: dict[str, str], preset: Preset) -> bool:
        return resolve(catalog, run.task, run.model, given, preset, run.seed).spec.key == run.key

    for preset in get_args(Preset):
        with suppress(OrthobenchError):
            own = resolve(catalog, run.task, run.model, {}, preset).spec.settings
            given = {name: text(value) for name, value in settings.items() if own.get(name) != value}
            for name in [*given]:  # a setting may follow from another one
                if is_enough(rest := {each: value for each, value in given.items() if each != name}, preset):
                    given = rest
            if is_enough(given, preset):
                words = [] if preset == default_preset(catalog, run.task, [run.model]) else ["--preset", preset]
                found[preset] = words + [word for name, value in given.items() for word in ("-s", f"{name}={value}")]
    return found.get(run.preset or "") or min(found.values(), key=len, default=None)


def _is_here(plugin: dict[str, Any]) -> bool:
    """Return whether a plugin's file has the same content as when the run was trained."""
    try:
        return bool(hash_of(Path(plugin["path"]).read_bytes()) == next(iter(plugin["files"].values())))
    except OSError:
        return False


def reproduce(spec: dict[str, Any], plugin_files: Sequence[str] = (), seeds: str | None = None) -> str:
    """Return a command that repeats the run even if the defaults change, or trains these seeds."""
    settings = merged_settings(spec)
    papers = set().union(*(each.settings for each in experiments(spec["task"], spec["model"])))
    if papers - settings.keys():  # records omit neutral values, which a paper's value would replace
        settings = _neutral(spec) | settings
    words = [word for name, value in settings.items() for word in ("-s", f"{name}={text(value)}")]
    words += [word for file in plugin_files for word in ("--plugin", file)]
    task = word_of(spec["task"], settings)
    if seeds is None:
        return shell_command("run", task, spec["model"], "--seed", spec["seed"], *words)
    return shell_command("sweep", task, "--models", spec["model"], "--seeds", seeds, *words)


def _neutral(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the neutral settings, which a record may omit; nothing if the plugins are not installed."""
    # Here, because it loads torch, and most records omit nothing that matters.
    from orthobench.task import TrainingSettings

    catalog = Catalog()
    try:
        task, model = (catalog.load(kind, spec[kind]).Settings for kind in ("task", "model"))
    except UsageError:
        return {}
    return {**task.neutral(), **model.neutral(), **TrainingSettings.neutral()}
