"""Read results: the runs of a database as pandas objects."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from orthobench.analysis.conditions import Condition, collect
from orthobench.analysis.selection import select_runs
from orthobench.analysis.variants import group
from orthobench.api.opened import OpenedRuns
from orthobench.errors import NoMatchError, UsageError, counted, unknown
from orthobench.options.arguments import (
    Database,
    File,
    Give,
    Label,
    LoggedSplit,
    Name,
    NamedPlace,
    NotNegative,
    Texts,
    listed,
)
from orthobench.options.checked import checked
from orthobench.reporting.account.names import full_title
from orthobench.reporting.figures.figures import STATE, against_cost, gradient_norms, learning_curves, orthogonality
from orthobench.reporting.figures.length_figures import over_length
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.tables.paper_tables import paper_table
from orthobench.settings import merged_settings
from orthobench.settings.filters import read_conditions
from orthobench.sinks.export_runs import export
from orthobench.sinks.targets import parse_target
from orthobench.spec.index import built_in
from orthobench.store import Run, Status, Weights
from orthobench.store.backup import back_up_alongside
from orthobench.store.by_length import read_by_length
from orthobench.store.sqlite import named_or_default
from orthobench.store.tables import utc_now
from orthobench.training.checkpoint import checkpoint_root, checkpoints_at, lock, remove_checkpoints
from orthobench.training.settled import status_in
from orthobench.weights.weights_files import WEIGHTS_KINDS
from orthobench.weights.weights_files import remove as remove_weights

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from orthobench.reporting.figures.figure_record import Figure
    from orthobench.store.repair import Repaired

RUN_COLUMNS: dict[str, Callable[[Run], Any]] = {
    "run": lambda run: run.key,
    "task": lambda run: run.task,
    "model": lambda run: run.model,
    "seed": lambda run: run.seed,
    "status": lambda run: run.status,
    "metric": lambda run: run.metric,
    "goal": lambda run: run.goal,
    "final": lambda run: run.final_value,
    "best": lambda run: run.best_test,
    "at_best_validation": lambda run: run.at_best_validation,
    "best_iteration": lambda run: run.best_iteration,
    "baseline": lambda run: run.baselines.get(run.metric),
    "iterations": lambda run: run.iterations,
    "total_iterations": lambda run: run.total_iterations,
    "parameters": lambda run: run.parameter_count,
    "seconds": lambda run: run.wall_seconds,
    "peak_memory": lambda run: run.peak_memory,
    "device": lambda run: run.device,
    "backend": lambda run: run.backend,
    "tags": lambda run: ", ".join(run.tags),
    "message": lambda run: run.message,
    "created_at": lambda run: run.created_at,
    "continued_from": lambda run: run.continued_from,
    "environment": lambda run: run.environment.facts,
}
"""The columns of a table of runs, with their values."""
CurveSplit = Literal["test", "valid", "train"]
CurveAxis = Literal["epoch", "iteration"]
Cost = Literal["parameters", "state", "seconds"]
Score = Literal["step", "inside", "jacobian"]
METRIC_COLUMNS = ("run", "split", "name", "epoch", "iteration", "value")


A_RUN = "the record of a run, or its key, which a table has as 'run'"
OneRun = Annotated[Run | str, Give(A_RUN)]


def _runs(value: Any) -> tuple[Any, ...]:
    """Return the records or keys in a table of runs or a list."""
    return listed(value.get("run") if hasattr(value, "columns") else value)


if TYPE_CHECKING:
    Runs = pd.DataFrame | Run | str | Sequence[Run] | Sequence[str]
else:  # without the type of a table, because pandas takes long to import
    Runs = Annotated[
        Sequence[OneRun], BeforeValidator(_runs), Give("a table from `runs()`, or a list of records or keys")
    ]


@checked
def open_results(db: Database | None = None) -> Results:
    """Open a database of runs to read.

    Args:
        db: a file or an SQLAlchemy URL. The default is results.db, or runs.db if results.db is protected.

    Raises:
        UsageError: there is no such database, or it needs an upgrade.
    """
    return Results(named_or_default(db, writes=False))


@checked
def repair(file: File, db: Database | None = None) -> Repaired:
    """Copy the rows of a damaged file that SQLite can read to a new file; the damaged one stays as it is.

    The command that trained a lost run trains it again.

    Args:
        file: the new file.
        db: as for `open_results`.

    Returns:
        How many rows of each table were copied and lost.

    Raises:
        UsageError: there is no such database, it is on a server or has another schema, or the new file exists.
        StorageError: SQLite cannot read the schema of the damaged file, so that only a backup helps.
    """
    from orthobench.store.repair import repair

    return repair(named_or_default(db, writes=False), file)


class Results(OpenedRuns):
    """The results in a database; as a context manager it closes the database at the end.

    Methods with a parameter `runs` accept a table from `runs()`, records, keys, a single one of these, or None for all
    runs. A key may be shortened to its first digits.
    """

    @property
    def overview(self) -> pd.DataFrame:
        """The runs of each task and model: their number, how many have finished, and the best test of the metric."""
        import pandas as pd

        rows = []
        for runs in group(self.store.runs(brief=True), lambda run: f"{run.task} {run.model}"):
            values = [run.best_test for run in runs if run.best_test is not None]
            rows.append(
                {
                    "task": runs[0].task,
                    "model": runs[0].model,
                    "runs": len(runs),
                    "finished": sum(run.status == Status.FINISHED for run in runs),
                    "metric": runs[0].metric,
                    "best": (min if runs[0].goal == "min" else max)(values, default=None),
                }
            )
        columns = ["task", "model", "runs", "finished", "metric", "best"]
        return pd.DataFrame(rows, columns=columns).sort_values(["task", "model"], ignore_index=True)

    def __repr__(self) -> str:
        try:
            runs = self.store.runs(brief=True)
        except Exception:  # a closed database
            return f"Results({str(self.db)!r})"
        tasks = len({run.task for run in runs})
        return f"Results({str(self.db)!r}): {counted(len(runs), 'run')} of {counted(tasks, 'task')}"

    def _repr_html_(self) -> str:
        table = self.overview.to_html(index=False, float_format="{:.4g}".format, max_rows=40, na_rep="")
        return f"{html.escape(repr(self))}\n{table}"

    @checked
    def runs(
        self,
        where: Texts = (),
        *,
        task: Any = None,
        model: Any = None,
        status: Any = None,
        seed: Any = None,
        tag: Any = None,
        **settings: Any,
    ) -> pd.DataFrame:
        """Return a table with one row per run, in the order in which the runs started.

        The columns are `RUN_COLUMNS`, followed by one column per setting. `final` and `best` are values of the task's
        `metric`, `seconds` is the total time, `peak_memory` is in bytes, and `environment` holds a dictionary.

        Args:
            where: conditions as text, such as ["n=170,360", "tag=none"], as for `orthobench ls --where`.
            settings: restrict to runs with these settings, such as `hidden_size=170`; a list contains alternatives.

        Raises:
            UsageError: a condition is malformed or repeated, or names an unknown task, model, status or setting.
        """
        import pandas as pd

        columns = {"task": task, "model": model, "status": status, "seed": seed, "tag": tag}
        conditions = read_conditions(where, **columns, **settings)
        status_of = status_in(self.store, self.db)
        try:
            runs = select_runs(self.store.runs(), conditions, status_of)
        except NoMatchError:
            runs = []
        records = [
            {name: read(run) for name, read in RUN_COLUMNS.items()}
            | {"status": str(status_of(run))}
            | _columns(merged_settings(run.spec))
            for run in runs
        ]
        names = list(dict.fromkeys((*RUN_COLUMNS, *(name for record in records for name in record))))
        return pd.DataFrame(records, columns=names)

    @checked
    def metrics(
        self, runs: Runs | None = None, *, split: LoggedSplit | None = None, name: Name | None = None
    ) -> pd.DataFrame:
        """Return the logged numbers, one row each, with the columns of `METRIC_COLUMNS`.

        Args:
            split: "train", "test", "valid", or "probe" for the values of probes.
            name: the name of a metric.

        Raises:
            UsageError: a key is unknown or ambiguous, or there is no such split.
        """
        import pandas as pd

        keys = self._keys(runs)
        stored = self.store.metric_values(list(keys), split=split, name=name)
        rows = [(keys[run], *rest) for run, *rest in stored]
        return pd.DataFrame(rows, columns=list(METRIC_COLUMNS))

    @checked
    def curve(self, run: OneRun, name: Name, split: LoggedSplit = "test") -> pd.Series[float]:
        """Return a metric of one run over its iterations: a series of values by iteration.

        Raises:
            UsageError: the run or the metric is unknown.
        """
        key = self._key(run)
        rows = self.metrics(key)
        series = rows[(rows["split"] == split) & (rows["name"] == name)]
        if series.empty:
            known = {f"{other} ({part})" for part, other in zip(rows["split"], rows["name"], strict=True)}
            raise unknown(f"metric of run {key}", f"{name} ({split})", known)
        return series.set_index("iteration")["value"].rename(name)

    @checked
    def vectors(self, run: OneRun, name: Name) -> pd.DataFrame:
        """Return the vectors of a probe of one run: one row per iteration.

        The table has shape [iterations, length]; shorter vectors end with NaN.

        Args:
            name: such as "gradient_norm/h"; the probe's name alone where it has one vector.

        Raises:
            UsageError: the run or the vector is unknown, or the probe has several vectors.
        """
        import pandas as pd

        record = self.store.get(self._key(run))
        traces = self.store.traces([record.id])
        known = {trace.name for trace in traces}
        names = [name] if name in known else sorted(other for other in known if other.startswith(f"{name}/"))
        if not names:
            raise unknown(f"vector of run {record.key}", name, known)
        if len(names) > 1:
            raise UsageError(f"probe {name} has several vectors: name one of {', '.join(names)}")
        selected = [trace for trace in traces if trace.name == names[0]]
        iterations = pd.Index([trace.iteration for trace in selected], name="iteration")
        return pd.DataFrame([list(trace.values) for trace in selected], index=iterations)

    @checked
    def by_length(self, run: OneRun) -> pd.DataFrame:
        """Return a run's metric over the length of the test sequences: one row per evaluation, one column per length.

        The index is named "iteration" and the columns "length". `attrs` contains the name of the metric ("metric") and
        the shortest and longest sequence length in training ("trained").

        Raises:
            UsageError: the run is unknown, or its task measures no metric over length.
        """
        import pandas as pd

        record = self.store.get(self._key(run))
        measured = read_by_length(self.store.traces([record.id]))
        if measured is None:
            raise UsageError(f"run {record.key} has no metric over length: its task measures none")
        rows = {iteration: pd.Series(values) for iteration, values in measured.values.items()}
        table = pd.DataFrame(rows).sort_index().T.rename_axis(index="iteration", columns="length")
        table.attrs = {"metric": measured.metric, "trained": measured.trained}
        return table

    @checked
    def delete(self, runs: Runs, *, weights_at: NamedPlace | None = None) -> Path | None:
        """Copy the database, then delete runs with all their rows, checkpoints and weights; return the copy's path.

        The copy does not contain the weights. Weights outside the folder next to the database stay, because another
        database may record them, too; a warning names each file.

        Args:
            runs: the runs to delete; None is not allowed here.
            weights_at: a folder or a URL whose weights are removed, too.

        Returns:
            The path of the copy; None for a database on a server, which is not copied.

        Raises:
            UsageError: a key is unknown or ambiguous, or no run is named.
            RunLockedError: a process trains one of the runs. No run is deleted then.
            StorageError: the copy cannot be written. No run is deleted then.
        """
        keys = self._keys(runs)
        root, file = checkpoint_root(self.db), self.db.file
        copy = None
        with ExitStack() as locks:
            for key in keys.values():
                locks.enter_context(lock(self.store, checkpoints_at(root, key)))
            # After all locks, because a run that still trains could store results that the copy then lacks.
            if file is not None:
                copy = back_up_alongside(file)
            for number, key in keys.items():
                weights = self.store.weights([number])
                self.store.delete(number)
                remove_checkpoints(self.db, root, key)
                remove_weights(self.db, key, weights, weights_at)
        return copy

    @checked
    def export(self, to: Name, runs: Runs | None = None) -> None:
        """Send runs to TensorBoard, MLflow, Trackio or Weights & Biases.

        Each is a new run there, except in TensorBoard, where it replaces the run that was sent before.

        Args:
            to: "tensorboard[:DIR]", "mlflow[:DIR|URI]", "trackio[:DIR]" or "wandb[:DIR]".

        Raises:
            UsageError: the destination is unknown or its package is not installed, or a key is unknown or ambiguous.
            StorageError: the destination cannot be written.
        """
        target, keys = parse_target(to), list(self._keys(runs).values())
        export(self.store, self.store.runs(keys=keys), target, status_in(self.store, self.db))

    @checked
    def weights(
        self, where: Texts = (), *, kinds: Texts | None = None, older_than: NotNegative | None = None
    ) -> list[tuple[Run, Weights]]:
        """Return the weights files that runs keep, each with the record of its run.

        Args:
            where: conditions on runs, as for `runs`.
            kinds: restrict to "best", "last" or "state".
            older_than: restrict to runs that have not changed for at least this number of days.

        Raises:
            UsageError: a condition or a kind is unknown.
        """
        for kind in kinds or ():
            if kind not in WEIGHTS_KINDS:
                raise unknown("kind of weights", kind, WEIGHTS_KINDS)
        try:
            conditions = read_conditions(where)
            runs = select_runs(self.store.runs(brief=True), conditions, status_in(self.store, self.db))
        except NoMatchError:
            return []
        newest = None if older_than is None else utc_now() - timedelta(days=older_than)
        by_id = {run.id: run for run in runs if newest is None or run.updated_at <= newest}
        return [
            (by_id[row.run_id], row)
            for row in self.store.weights()
            if row.run_id in by_id and (kinds is None or row.kind in kinds)
        ]

    @checked
    def drop_weights(self, chosen: Sequence[tuple[Run, Weights]], *, weights_at: NamedPlace | None = None) -> None:
        """Remove weights files, for example the result of `weights`, and their records; the results of the runs stay.

        Args:
            weights_at: as for `delete`, which explains which files stay.

        Raises:
            StorageError: a file cannot be removed.
        """
        for run, row in chosen:
            self.store.drop_weights(run.id, [row.kind])
            remove_weights(self.db, run.key, [row], weights_at)

    @checked
    def table(self, paper: Name, name: Label) -> pd.DataFrame:
        """Return a table of a paper with published and measured values: one row per published number.

        Columns: row, column, model, parameters, printed, measured, measured_low, measured_high, seeds, difference,
        verdict, command and others. `measured` is the mean over finished seeds; its 90 % interval decides the verdict.

        Args:
            paper: the key of the paper, such as "helfrich2018".
            name: the number or name of the table.

        Raises:
            UsageError: the paper or the table is unknown.
        """
        return paper_table(self.store, paper, name, built_in()["variants"])

    @checked
    def plot_curves(
        self,
        where: Texts = (),
        *,
        metric: str = "",
        split: CurveSplit = "test",
        x: CurveAxis = "epoch",
        **conditions: Any,
    ) -> go.Figure:
        """Draw the learning curves of models: the median over seeds, in a band from the lowest to the highest seed.

        Args:
            where: conditions on the runs, as for `runs`.
            metric: the metric; by default the task's main one.
            conditions: further conditions by name, such as `task="adding"` or `model=["scornn", "lstm"]`.

        Returns:
            The page's figure, as a Plotly figure.

        Raises:
            UsageError: no run meets the conditions, the runs belong to different tasks, or they lack the metric.
        """
        condition, styles = self._condition(where, conditions)
        known = {name for variant in condition.variants for part, name in variant.metrics if part == split}
        name = metric or condition.metric.name
        if name not in known:
            raise unknown(f"{split} metric", name, known)
        return learning_curves(condition, styles, x, name, split).to_plotly()

    @checked
    def plot_orthogonality(self, where: Texts = (), *, of: Score = "step", **conditions: Any) -> go.Figure:
        """Draw how far steps are from orthogonal, over epochs; as `plot_curves`.

        Args:
            where: conditions on the runs, as for `runs`.
            of: "step" draws ||W^T W - I||_F of the matrices W by which a step multiplies the state, "inside" of those
                inside gates and derivatives, and "jacobian" ||J^T J - I||_F of the step's Jacobian.
            conditions: further conditions by name.
        """
        score = "orthogonality" if of == "step" else f"orthogonality_{of}"
        return _plotted(orthogonality(*self._condition(where, conditions), of=score), "distance from orthogonal")

    @checked
    def plot_gradient_norms(self, where: Texts = (), **conditions: Any) -> go.Figure:
        """Draw ||dL/dh_t|| over the steps t, before training (thin) and after; as `plot_curves`."""
        return _plotted(gradient_norms(*self._condition(where, conditions)), "gradient norms")

    @checked
    def plot_lengths(self, where: Texts = (), **conditions: Any) -> go.Figure:
        """Draw a metric over the length of the test sequences, with the training lengths shaded; as `plot_curves`."""
        drawn = over_length(*self._condition(where, conditions))
        return _plotted(drawn and drawn[1], "metric over length")

    @checked
    def plot_ends(
        self,
        where: Texts = (),
        *,
        against: Cost = "parameters",
        **conditions: Any,
    ) -> go.Figure:
        """Draw the metric at the end of training against the number of parameters, the size of the state or
        the seconds of training.

        Each seed is a small point, and their median a large one. The arguments are those of `plot_curves`.

        Raises:
            UsageError: as for `plot_curves`, or fewer than two models have finished runs.
        """
        cost = {"seconds": "seconds of training", "state": STATE}.get(against, against)
        return _plotted(against_cost(*self._condition(where, conditions), cost), "finished runs of two models")

    def _condition(self, where: Sequence[str], conditions: Mapping[str, Any]) -> tuple[Condition, Styles]:
        """Return the task of these runs with its variants, and the styles of their curves.

        Raises:
            UsageError: no run meets the conditions, or the runs belong to different tasks or settings of a task.
        """
        selected = read_conditions(where, **conditions)
        runs = select_runs(self.store.runs(), selected, status_in(self.store, self.db))
        if len({run.condition for run in runs}) != 1:
            first = {run.condition: run for run in runs}
            found = collect(self.store, list(first.values()))
            titles = [full_title(condition, found) for condition in found]
            raise UsageError(
                f"a figure shows one task with the same settings, and these runs have {len(titles)}: "
                f"{'; '.join(titles[:8]) or 'none'}{'; ...' if len(titles) > 8 else ''}: give `task` or its settings"
            )
        (condition,) = found = collect(self.store, runs)
        return condition, Styles(found)

    def _key(self, run: Run | str) -> str:
        return self.store.get(run).key if isinstance(run, str) else run.key

    def _keys(self, runs: Any) -> dict[int, str]:
        """Return the keys of runs by their database ids."""
        if runs is None:
            return {run.id: run.key for run in self.store.runs()}
        keys = [self._key(run) for run in runs]
        return {run.id: run.key for run in self.store.runs(keys=keys)}


def _plotted(figure: Figure | None, what: str) -> go.Figure:
    """Return a figure for Plotly.

    Raises:
        UsageError: there is none.
    """
    if figure is None:
        raise UsageError(f"these runs have no {what} to draw")
    return figure.to_plotly()


def _columns(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings under column names that do not clash with the other columns of a run."""
    return {f"setting_{name}" if name in RUN_COLUMNS else name: value for name, value in settings.items()}
