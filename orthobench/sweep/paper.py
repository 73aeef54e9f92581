"""The runs behind a paper's tables and figures, at full size or smaller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orthobench.errors import UsageError, unknown
from orthobench.papers import Artifact, Experiment, Paper, papers
from orthobench.plugins import Catalog
from orthobench.settings import SHORT_NAMES, same, text
from orthobench.spec import RunConfig, resolve
from orthobench.studies import find as find_study

SCALED = ("epochs", "max_iterations", "sequence_length", "train_size", "test_size")
SHORTEST = 10
"""No length is scaled below this many steps."""


def choose_experiments(paper: Paper, kind: str = "", name: str | None = None) -> list[Experiment]:
    """The experiments of a table or figure (kind "table", name "1", or its whole name), or of the whole paper.

    Raises:
        UsageError: the paper has none of this name.
    """
    if name is None:
        return paper.experiments()
    names = [known.name for known in paper.artifacts() if paper.experiments_in(known.name)]
    for candidate in (f"{kind} {name}", name):
        if candidate in names:
            return paper.experiments_in(candidate)
    for artifact in paper.artifacts():
        if artifact.study and artifact.name in (f"{kind} {name}", name):
            raise UsageError(f"{artifact.name} of {paper.key} is a study: orthobench study {artifact.study}")
    raise UsageError(f"{paper.key} has no {kind} {name} that can be run here; it has {', '.join(names)}")


def only_where(experiments: Sequence[Experiment], wanted: Mapping[str, str]) -> list[Experiment]:
    """Those with these settings (or of this `task`), each as it is written on the command line.

    Raises:
        UsageError: none has a setting of this name, or this value of it.
    """
    chosen = list(experiments)
    for short, value in wanted.items():
        name = SHORT_NAMES.get(short, short)
        having = [one for one in chosen if name in _described(one)]
        if not having:
            raise unknown("setting of these experiments", name, set().union(*map(_described, chosen)))
        chosen = [one for one in having if same(_described(one)[name], value)]
        if not chosen:
            there = dict.fromkeys(text(_described(one)[name]) for one in having)
            raise UsageError(f"none of these experiments has {name}={value}; they have {', '.join(there)}")
    return chosen


def _described(experiment: Experiment) -> dict[str, Any]:
    return {"task": experiment.task} | experiment.settings


def small_runs(catalog: Catalog, paper: Paper, artifact: Artifact) -> list[tuple[RunConfig, dict[str, str]]]:
    """The runs of a figure's small version, and what tells them apart; none where its study computes."""
    assert artifact.small is not None
    if artifact.study:
        runs = find_study(artifact.study).runs.get("quick", ())
        own = [run for run in runs if run.figure == artifact.name] or runs
        asked = [(run.task, run.model, run.settings) for run in own]
    else:
        task = paper.experiments_in(artifact.name)[0].task
        asked = [(task, model, artifact.small.settings) for model in artifact.small.models]
    return [
        (resolve(catalog, task, model, settings, "quick"), {name: text(value) for name, value in settings.items()})
        for task, model, settings in asked
    ]


def variant_keys(catalog: Catalog) -> tuple[dict[str, str], dict[str, str]]:
    """By the identity of every paper's experiment, the variant its runs are of, or why there are none here."""
    keys, reasons = {}, {}
    for paper in papers():
        for experiment in paper.experiments():
            try:
                config = resolve(catalog, experiment.task, experiment.model, {}, experiment=experiment)
            except UsageError as error:
                reasons[experiment.identity] = str(error)
            else:
                keys[experiment.identity] = config.spec.variant
    return keys, reasons


def resolve_experiments(
    catalog: Catalog, experiments: Sequence[Experiment], seeds: Sequence[int], scale: float = 1.0
) -> list[tuple[RunConfig, dict[str, str]]]:
    """The runs of these experiments, seed by seed, and what tells them apart; each once.

    A scale below one makes them smaller in the settings `SCALED`, which stand in each run's record as any other
    setting: a scaled run is another variant, and never the paper's.

    Raises:
        UsageError: the scale is not in (0, 1], or an experiment names what there is not.
    """
    if not 0 < scale <= 1:
        raise UsageError(f"--scale {scale:g} should be above 0 and at most 1")
    made: dict[str, tuple[RunConfig, dict[str, str]]] = {}
    for experiment in experiments:
        full = resolve(catalog, experiment.task, experiment.model, {}, seed=seeds[0], experiment=experiment)
        smaller = _smaller(full, scale)
        one = full
        if smaller:
            one = resolve(catalog, experiment.task, experiment.model, smaller, seed=seeds[0], experiment=experiment)
        telling = ("sequence_length", "hidden_size", *experiment.task_settings)
        spec = one.spec
        settings = spec.settings
        shared = experiment.shared
        chosen = {
            name: str(settings[name])
            for name in dict.fromkeys((*telling, *smaller))
            if name in settings and (name not in shared or name in smaller)
        }
        made.setdefault(spec.key, (one, chosen))
    return [(one.with_seed(seed), chosen) for seed in seeds for one, chosen in made.values()]


def _smaller(full: RunConfig, scale: float) -> dict[str, Any]:
    """The settings that the scale changes."""
    if scale == 1:
        return {}
    spec = full.spec
    settings = spec.settings
    least = {"train_size": spec.training["batch_size"], "sequence_length": SHORTEST}
    scaled = {
        name: max(least.get(name, 1), round(value * scale))
        for name in SCALED
        if isinstance(value := settings.get(name), int)
    }
    return {name: min(value, settings[name]) for name, value in scaled.items() if value < settings[name]}
