"""The runs of a paper's tables, figures and studies, at full size or scaled down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orthobench.errors import UsageError, unknown
from orthobench.options.arguments import Preset
from orthobench.options.assignments import given_twice
from orthobench.papers import Artifact, Experiment, Paper, Study, find_study
from orthobench.planning.sweep_runs import SweepRun, with_seeds
from orthobench.plugins import Catalog
from orthobench.settings import SHORT_NAMES, text
from orthobench.settings.filters import narrow, read_conditions
from orthobench.spec.resolve import RunConfig, resolve

SCALED = ("epochs", "max_iterations", "sequence_length", "train_size", "test_size")
SHORTEST = 10
"""The shortest sequence length after scaling."""


def select_experiments(paper: Paper, kind: str = "", name: str | None = None) -> list[Experiment]:
    """Return the experiments of a table or figure, or of the whole paper.

    Args:
        kind: "table" or "figure".
        name: the number ("1") or the whole name; None for the whole paper.

    Raises:
        UsageError: the paper has no table or figure of this name.
    """
    if name is None:
        return paper.experiments()
    names = [artifact.name for artifact in paper.artifacts() if paper.experiments_in(artifact.name)]
    for candidate in (f"{kind} {name}", name):
        if candidate in names:
            return paper.experiments_in(candidate)
    for artifact in paper.artifacts():
        if artifact.study and artifact.name in (f"{kind} {name}", name):
            raise UsageError(f"{artifact.name} of {paper.key} is a study: orthobench study {artifact.study}")
    raise UsageError(f"{paper.key} has no {kind} {name} that can be run here; it has {', '.join(names)}")


def restrict(
    paper: Paper,
    table: str | None = None,
    figure: str | None = None,
    models: Sequence[str] | None = None,
    where: Mapping[str, Any] | None = None,
) -> list[Experiment]:
    """Return the experiments of a paper, table or figure that have these models and settings.

    Args:
        where: for each setting a value or a list of alternatives; `task` and `model` count as settings.

    Raises:
        UsageError: the paper has no such table, figure, model or setting, or both a table and a figure are named.
    """
    if table and figure:
        raise UsageError("name a table or a figure, one at a time")
    experiments = select_experiments(paper, *(("table", table) if table else ("figure", figure)))
    if models is not None:
        experiments = with_models(experiments, models)
    return narrow(experiments, read_conditions(**(where or {})), _described, noun="experiment")


def with_models(experiments: Sequence[Experiment], models: Sequence[str]) -> list[Experiment]:
    """Return the experiments with these models.

    Raises:
        UsageError: no experiment has one of the models.
    """
    known = {experiment.model for experiment in experiments}
    for model in models:
        if model not in known:
            raise unknown("model of this paper", model, known)
    return [experiment for experiment in experiments if experiment.model in models]


def _described(experiment: Experiment) -> dict[str, Any]:
    return {"task": experiment.task, "model": experiment.model} | experiment.settings


def small_runs(catalog: Catalog, paper: Paper, artifact: Artifact) -> list[SweepRun]:
    """Return the runs of the small version of a figure; an empty list if its study computes without training."""
    assert artifact.small is not None
    if artifact.study:
        runs = find_study(artifact.study).runs("quick", catalog.built_in("model"))
        own = [run for run in runs if run.figure == artifact.name] or runs
        points = [(run.task, run.model, run.settings) for run in own]
    else:
        task = paper.experiments_in(artifact.name)[0].task
        points = [(task, model, artifact.small.settings) for model in artifact.small.models]
    return [
        SweepRun(
            resolve(catalog, task, model, settings, "quick"), {name: text(value) for name, value in settings.items()}
        )
        for task, model, settings in points
    ]


def study_runs(
    study: Study, catalog: Catalog, preset: Preset, seeds: Sequence[int]
) -> tuple[list[SweepRun], dict[str, list[str]]]:
    """Return the runs of a study, each once and seed by seed, and the keys of the runs of each figure.

    Where the study limits the number of seeds, the runs have the first ones.
    """
    points = study.runs(preset, catalog.built_in("model"))
    first = [
        SweepRun(
            resolve(catalog, run.task, run.model, run.settings, preset),
            {setting: text(value) for setting, value in run.settings.items()},
        )
        for run in points
    ]
    figures: dict[str, list[str]] = {}
    for number, seed in enumerate(seeds):
        for run, (config, _) in zip(points, first, strict=True):
            if run.most_seeds is None or number < run.most_seeds:
                figures.setdefault(run.figure, []).append(config.with_seed(seed).spec.key)
    keys = {key for own in figures.values() for key in own}
    return [run for run in with_seeds(first, seeds) if run.config.spec.key in keys], figures


def resolve_experiments(
    catalog: Catalog,
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    scale: float = 1.0,
    settings: Mapping[str, Any] | None = None,
) -> list[SweepRun]:
    """Return the runs of these experiments, each once, seed by seed.

    Args:
        scale: factor on the settings in `SCALED`. The scaled values are part of a run's settings, so a scaled run is
            another variant and never counts as a run of the paper.
        settings: settings that override the experiments, which also gives another variant.

    Raises:
        UsageError: the scale is not in (0, 1], an experiment needs an unknown plugin or setting, or a setting is given
            twice.
    """
    if not 0 < scale <= 1:
        raise UsageError(f"`scale={scale:g}` should be above 0 and at most 1")
    own: dict[str, Any] = {}
    for symbol, value in (settings or {}).items():
        name = SHORT_NAMES.get(symbol, symbol)
        if name in own:
            raise given_twice(name, text(own[name]), text(value))
        own[name] = value
    first: dict[str, SweepRun] = {}
    for experiment in experiments:
        config = resolve(catalog, experiment.task, experiment.model, own, seed=seeds[0], experiment=experiment)
        changed = own | _smaller(config, scale)
        if changed != own:
            config = resolve(catalog, experiment.task, experiment.model, changed, seed=seeds[0], experiment=experiment)
        names = dict.fromkeys(("sequence_length", "hidden_size", *experiment.task_settings, *changed))
        resolved = config.spec.settings
        distinguishing = {
            name: str(resolved[name])
            for name in names
            if name in resolved and (name not in experiment.shared or name in changed)
        }
        first.setdefault(config.spec.key, SweepRun(config, distinguishing))
    return with_seeds(_distinguished(list(first.values())), seeds)


def _distinguished(runs: Sequence[SweepRun]) -> list[SweepRun]:
    """Return the runs; if several runs of a model have the same label, add the settings in which they differ."""
    alike: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in runs:
        alike.setdefault(_shown(run), []).append(run.config.spec.settings)
    result = []
    for run in runs:
        own, group = run.config.spec.settings, alike[_shown(run)]
        differing = [name for name in own if any(other.get(name) != own[name] for other in group)]
        result.append(SweepRun(run.config, run.settings | {name: text(own[name]) for name in differing}))
    return result


def _shown(run: SweepRun) -> tuple[str, str, str]:
    return run.config.spec.task, run.config.spec.model, str(run.settings)


def _smaller(full: RunConfig, scale: float) -> dict[str, Any]:
    """Return the scaled values of the settings that the scale changes."""
    if scale == 1:
        return {}
    settings = full.spec.settings
    least = {"train_size": settings["batch_size"], "sequence_length": SHORTEST}
    scaled = {
        name: max(least.get(name, 1), round(value * scale))
        for name in SCALED
        if isinstance(value := settings.get(name), int)
    }
    return {name: min(value, settings[name]) for name, value in scaled.items() if value < settings[name]}
