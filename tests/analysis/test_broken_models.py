"""Claims on models that are broken on purpose: each claim that counts is one that a broken model fails.

The runs are real but small. Where a claim's data set or size is large, the adding problem over a few steps stands in
for it: the check is the claim's, with the same models next to the broken one. For a claim about a metric over length,
short words over S3 stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from support.configs import with_classes

from orthobench.analysis.claims import read_claims
from orthobench.analysis.claims.claim import Comparing, ModelClaim
from orthobench.analysis.claims.comparisons import Worst
from orthobench.analysis.claims.curve_shapes import CurveClaim, Starts
from orthobench.analysis.claims.lengths import HoldsLengths, PredictsHorizon, ReachesFarther, Tracks
from orthobench.analysis.claims.over_setting import OverSetting
from orthobench.analysis.claims.reading import ClaimKind
from orthobench.analysis.conditions import VariantData, collect
from orthobench.analysis.paper_tables import TIMES
from orthobench.model import Model
from orthobench.options.run_options import RunOptions
from orthobench.papers import Artifact, Paper, find_study, papers, studies
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.training.lifecycle import train

SMALL = {"train_size": 600, "test_size": 100, "batch_size": 20, "epochs": 4, "evaluate_every": 10, "shuffle": False}
LENGTH, SHORTER, UNITS = 20, 10, 16
HEAT_MAPS: Mapping[bool, dict[str, float]] = {
    False: {"sequence_length": 100, "hidden_size": 160},
    True: {"sequence_length": 30, "hidden_size": 40, "learning_rate": 1e-3},
}
"""The sizes of the maps of gradients, of the study and of its small version: a share that is left depends on them."""
WORDS: Mapping[str, Any] = {"group": "S3", "shortest": 2, "longest": 4}
SIZES = (0, 8, 16)
"""Sizes of ENRNN's short-term state: none, half of the units, all of them."""
SETTINGS: Mapping[str, dict[str, Any]] = {
    "kru": {"factor_sizes": 2},
    "eurnn": {"style": "tunable", "capacity": 2},
    "ornn": {"reflections": 4},
    "spectral_rnn": {"reflections": 4},
}
OUTSIDE = {"output_weight", "output_bias", "input_weight", "bias", "start"}
"""Parameters that are not part of W."""

Gradient = Callable[[str, torch.Tensor], torch.Tensor]
BREAKS: Mapping[str, Gradient] = {
    "untrained": lambda name, gradient: gradient * 0,
    "sign of the gradient turned": lambda name, gradient: -gradient,
    "W never trained": lambda name, gradient: gradient if name in OUTSIDE else gradient * 0,
    "bias frozen": lambda name, gradient: gradient * 0 if "bias" in name else gradient,
    "D = I": lambda name, gradient: gradient,  # with no negative ones, where the model has any
}
WRONG_STEPS: Mapping[str, Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "every unit damped": {"antisymmetric": ("weight", lambda w: 0 * w - torch.eye(len(w), dtype=w.dtype))},
    "every unit driven": {"antisymmetric": ("weight", lambda w: 0 * w + torch.eye(len(w), dtype=w.dtype))},
    "larger W in the step alone": {"enrnn": ("weight", lambda w: 1.5 * w)},
    "larger W_S": {"enrnn": ("blocks", lambda parts: (parts[0], 1.5 * parts[1]))},
}
"""By model, a method and what becomes of its result, for claims about the step, which hold for every trained W."""
PROBES = {
    "heat_maps": "heat_map",
    "jacobians": "jacobian",
    "euler_stability": "euler_stability",
    "gradient_bounds": "gradient_bound",
}
"""By a study's drawing, the probe that it needs and a run does not have by itself."""
INTACT = "intact"


def broken(model_class: type[Model], gradient: Gradient) -> type[Model]:
    """Return the model with its parameters' gradients changed."""

    base: Any = model_class

    class Broken(base):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            for name, parameter in self.named_parameters():
                parameter.register_hook(lambda value, name=name: gradient(name, value))

    return Broken


def with_wrong_step(model_class: type[Model], method: str, change: Callable[[Any], Any]) -> type[Model]:
    """Return the model with a changed method."""
    return type("WrongStep", (model_class,), {method: lambda self: change(getattr(model_class, method)(self))})


@pytest.fixture(scope="module")
def variant(tmp_path_factory) -> Callable[..., VariantData]:
    """A function that trains a small run of a model once, whole or broken, and returns its variant."""
    folder: Path = tmp_path_factory.mktemp("broken")

    @cache
    def trained(task: str, model: str, fault: str, length: int, short_size: int | None, study: str) -> VariantData:
        torch.set_num_threads(1)
        steps: dict[str, Any] = {"sequence_length": length}
        if task == "group_word":
            steps = {**WORDS, "test_shortest": length, "test_longest": length}
        settings = {**SMALL, **steps, "hidden_size": UNITS, **SETTINGS.get(model, {})}
        settings |= {} if short_size is None else {"short_size": short_size}
        if study.endswith("heat_map"):
            settings |= HEAT_MAPS[study == "small heat_map"]
        settings |= {"probes": study.split()[-1]} if study else {}
        if model in ("scornn", "enrnn"):
            settings |= {"negative_ones": 0 if fault == "D = I" else 0.5 if model == "scornn" else 0.3}
        config = resolve(Catalog(), task, model, settings)
        if fault in WRONG_STEPS:
            config = with_classes(config, model_class=with_wrong_step(config.model_class, *WRONG_STEPS[fault][model]))
        elif fault != INTACT:
            config = with_classes(config, model_class=broken(config.model_class, BREAKS[fault]))
        database = folder / f"{fault}.db"
        with open_store(str(database), create=True) as store:
            run = train(config, store, RunOptions(device="cpu", keep_weights="none"))
            ((condition,),) = [collect(store, [run])]
        return replace(condition.variants[0], selection="curve")

    return lambda task, model, fault, length=LENGTH, short_size=None, study="": trained(
        task, model, fault, length, short_size, study
    )


def outcome(
    variant: Callable[..., VariantData], paper: Paper, artifact: Artifact, claim: Any, small: bool, fault: str
) -> bool:
    """Return whether small runs of the claim's own model, broken, pass the claim; a diverged run decides nothing."""
    model, task = claim.model, find_task(paper, artifact)
    if isinstance(claim, HoldsLengths):
        task, claim = "group_word", claim.model_copy(update=lengths_of_words(claim))
    elif isinstance(claim, ReachesFarther):
        task = "group_word"
    elif isinstance(claim, CurveClaim):
        claim = claim.model_copy(update={"metric": "" if claim.split else claim.metric, "split": ""})
        if isinstance(claim, Starts):
            claim = claim.model_copy(update={"after": SMALL["evaluate_every"]})
    if isinstance(claim, OverSetting):
        pairs = [(float(size), variant(task, model, fault, short_size=size)) for size in SIZES]
        return claim.judge(pairs)[0].holds
    size = None
    if "short_size" in claim.where:
        size = 0 if claim.where["short_size"] == 0 else UNITS
    subject = variant(task, model, fault, short_size=size, study=find_study_probe(artifact, small))
    if not isinstance(claim, Comparing):
        return bool(subject.diverged) or claim.judge(subject)[0].holds
    if isinstance(claim, Worst):
        rivals = [variant(task, model, fault, short_size=other) for other in SIZES[1:]]
    elif artifact.study and find_study(artifact.study).drawing == "over_setting":
        rivals = [variant(task, model, INTACT)]
    elif claim.others == [model]:
        rivals = [variant(task, model, fault, length=SHORTER)]
    else:
        rivals = [variant(task, other, INTACT) for other in compared_models(paper, artifact, claim)]
    return bool(subject.diverged) or claim.judge(subject, rivals)[0].holds


def lengths_of_words(claim: HoldsLengths) -> dict[str, int | None]:
    """Return the limits of a claim over the lengths of the small runs."""
    return {name: SHORTER if getattr(claim, name) else None for name in ("up_to", "lost_from")}


def find_study_probe(artifact: Artifact, small: bool) -> str:
    """Return the probe of an artifact's study that a run does not have by itself, with its size."""
    drawing = find_study(artifact.study).drawing if artifact.study else ""
    probe = PROBES.get(drawing, "")
    return f"small {probe}" if probe and small else probe


def compared_models(paper: Paper, artifact: Artifact, claim: Comparing) -> list[str]:
    """Return the models that a claim compares its own with."""
    named = claim.others or dict.fromkeys(experiment.model for experiment in paper.experiments_in(artifact.name))
    return [model for model in named if model != claim.model]


def find_task(paper: Paper, artifact: Artifact) -> str:
    tasks = {experiment.task for experiment in paper.experiments_in(artifact.name)}
    return "copying" if tasks == {"copying"} else "adding"


def claims_of(artifact: Artifact, small: bool) -> list[ClaimKind]:
    """Return the claims of an artifact, or of its small version; those that it has from the artifact are left out."""
    tables = artifact.claims if not small else artifact.small.claims if artifact.small else []
    return read_claims(artifact.model_copy(update={"claims": tables}))


TRIED = [
    pytest.param(paper, artifact, claim, small, id=f"{paper.key} {artifact.name}{' small' * small}: {claim.text}")
    for paper in papers()
    for artifact in paper.artifacts()
    for small in (False, True)
    for claim in claims_of(artifact, small)
    if isinstance(claim, ModelClaim) and claim.named not in TIMES
]


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "artifact", "claim", "small"), TRIED)
def test_claim_that_counts_fails_on_a_broken_model(variant, paper, artifact, claim, small):
    """Those that all broken models pass are marked, and no others are."""
    about_steps = claim.named.startswith(("euler_stability/", "gradient_bound/"))
    wrong = [fault for fault, by_model in WRONG_STEPS.items() if about_steps and claim.model in by_model]
    passes = (outcome(variant, paper, artifact, claim, small, fault) for fault in [*wrong, *BREAKS])
    assert all(passes) == claim.cannot_fail


OWN = [pytest.param(claim, id=f"{study.name}: {claim.text}") for study in studies() for claim in read_claims(study)]


@pytest.mark.slow
@pytest.mark.parametrize("claim", OWN)
def test_claim_of_this_project_fails_on_a_broken_model(variant, claim):
    """None of the horizons of models that did not learn S3 passes."""
    assert isinstance(claim, Tracks | PredictsHorizon)
    if isinstance(claim, Tracks):
        claim = claim.model_copy(
            update={name: SHORTER if getattr(claim, name) else None for name in ("up_to", "lost_by")}
        )
    for fault in ("untrained", "sign of the gradient turned"):
        subject = variant("group_word", claim.model, fault, study="error_control")
        share, _ = claim.judge(subject)
        assert share.seeds
        assert not share.holds
