"""Test a trained model again, also with other data of its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orthobench.errors import UsageError, unknown
from orthobench.options.arguments import BackendName
from orthobench.recurrence.backends import use_backend
from orthobench.spec.resolve import RunConfig
from orthobench.store import Run, Store
from orthobench.trained.load import TrainedModel
from orthobench.training.build import build_trainer
from orthobench.training.by_length import ScoresByLength
from orthobench.training.evaluator import Evaluator

BATCH = "evaluation_batch_size"


@dataclass(frozen=True)
class EvaluatedMetric:
    """A metric of the trained model.

    Attributes:
        split: "test" or "valid".
        stored: the value in the database for the same weights, if any.
        baseline: the score of the best predictor without memory, if known.
    """

    split: str
    name: str
    value: float
    stored: float | None
    baseline: float | None


@dataclass(frozen=True)
class EvaluationResult:
    """The result of an evaluation.

    Attributes:
        run: the run's key.
        weights: "best" or "last".
        iteration: the iteration after which the weights were saved.
        changed: the settings of the task, and the seed, that differ from the run's.
        metrics: every metric of the task.
        by_length: the task's metric over length, by the length of the test sequences; None if it has none.
        length_metric: the name of that metric.
        trained_lengths: the shortest and the longest length of training, with the run's own settings.
    """

    run: str
    task: str
    model: str
    weights: str
    iteration: int
    changed: dict[str, Any]
    metrics: list[EvaluatedMetric]
    by_length: dict[int, float] | None = None
    length_metric: str | None = None
    trained_lengths: tuple[int, int] | None = None


def evaluate(
    trained: TrainedModel,
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    backend: BackendName = "auto",
    stored: Mapping[tuple[str, str], float] | None = None,
) -> EvaluationResult:
    """Test a trained model on its task, as at the end of its run.

    Args:
        overrides: settings of the task by name, as values or text, and `evaluation_batch_size`.
        seed: the seed of the data; None for the run's.
        stored: the stored values by split and metric.

    Raises:
        UsageError: a setting is unknown or not one of the task, or the data is missing or does not fit the model.
    """
    config = with_data(trained.config, overrides or {}, seed)
    trainer = build_trainer(config, trained.device)
    task = trainer.task
    if task.signature != trained.signature:
        own, new = (f"{s.input_size} inputs and {s.output_size} outputs" for s in (trained.signature, task.signature))
        raise UsageError(f"the weights have {own}, and the task with these settings has {new}: give other settings")
    trainer.model.load_state_dict(trained.model.state_dict())
    evaluator = Evaluator(trainer)
    with use_backend(backend):
        scores = ScoresByLength(task) if task.length_metric else None
        measured = {("test", name): value for name, value in evaluator.measure(task.test, scores=scores).items()}
        if task.validation is not None:
            measured |= {("valid", name): value for name, value in evaluator.measure(task.validation).items()}
        final, _ = evaluator.measure_final(lambda done, total: None)
    measured |= {("test", name): value for name, value in final.items()}
    metrics = [
        EvaluatedMetric(split, name, value, (stored or {}).get((split, name)), evaluator.baselines.get(name))
        for (split, name), value in measured.items()
    ]
    spec, before = config.spec, trained.config.spec
    changed = {name: value for name, value in spec.task_settings.items() if before.task_settings.get(name) != value}
    if spec.seed != before.seed:
        changed["seed"] = spec.seed
    return EvaluationResult(
        run=before.key,
        task=spec.task,
        model=spec.model,
        weights=trained.kind,
        iteration=trained.iteration,
        changed=changed,
        metrics=metrics,
        by_length=None if scores is None else scores.means(),
        length_metric=task.length_metric,
        trained_lengths=task.trained_lengths(trained.config.task_settings) if task.length_metric else None,
    )


def with_data(config: RunConfig, overrides: Mapping[str, Any], seed: int | None) -> RunConfig:
    """Return the run with other settings of its task and another seed.

    Raises:
        UsageError: a setting is unknown, is not a setting of the task, or has an invalid value.
    """
    own, training = config.task_class.Settings.model_fields, config.training
    for name in overrides:
        if name in own or name == BATCH:
            continue
        if name in config.spec.settings:
            raise UsageError(f"{name} belongs to the trained run: an evaluation can only change settings of the task")
        raise unknown("setting of the task", name, [*own, BATCH])
    values = {name: value for name, value in overrides.items() if name in own}
    settings = config.task_class.Settings.read({**config.task_settings.model_dump(), **values})
    if BATCH in overrides:
        training = type(training).read({**training.model_dump(), BATCH: overrides[BATCH]})
    spec = replace(
        config.spec,
        task_settings=settings.canonical(),
        training=training.canonical(),
        seed=config.spec.seed if seed is None else seed,
    )
    return replace(config, spec=spec)


def stored_metrics(store: Store, run: Run, iteration: int) -> dict[tuple[str, str], float]:
    """Return the stored values of a run's tests at an iteration, by split and metric."""
    rows = store.metrics([run.id], iteration=iteration)
    return {
        (row.split, row.name): row.value for row in rows if row.split in ("test", "valid") and row.value is not None
    }
