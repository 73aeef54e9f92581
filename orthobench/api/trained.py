"""Load trained models, test them again, and export them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from orthobench.api.results import A_RUN, Results
from orthobench.errors import UsageError
from orthobench.isolation import isolated
from orthobench.options.arguments import (
    BackendName,
    Count,
    Database,
    Device,
    DeviceName,
    ExportFormat,
    File,
    FileName,
    Files,
    Give,
    Model,
    NamedPlace,
    Seed,
    WhichWeights,
)
from orthobench.options.checked import checked
from orthobench.options.data_folder import use_data_folder
from orthobench.plugins import Catalog
from orthobench.store import Run
from orthobench.store.sqlite import named_or_default
from orthobench.system.location import Place, from_home
from orthobench.trained.evaluate import EvaluationResult, stored_metrics
from orthobench.trained.evaluate import evaluate as measure
from orthobench.trained.export_model import Exported
from orthobench.trained.export_model import export as write
from orthobench.trained.load import TrainedModel, is_file, load_file, load_run
from orthobench.training.device import pick_device


def _file(run: Run | str | Path) -> Run | str | Path:
    return run if isinstance(run, Run) else type(run)(from_home(str(run)))


TrainedRun = Annotated[Run | str | Path, AfterValidator(_file), Give(f"{A_RUN}, or a file of weights")]


@checked
@isolated()
def load_model(
    run: TrainedRun,
    db: Database | None = None,
    *,
    weights: WhichWeights | None = None,
    weights_at: NamedPlace | None = None,
    device: Device = "cpu",
    plugins: Files = (),
    model: Model | None = None,
) -> TrainedModel:
    """Load the model of a run with its kept weights, and the task of the run, whose splits preprocess the data.

    Args:
        run: a record, a key or its first digits, or a file of weights.
        db: the database of the run; None for the default one. A file of weights needs no database.
        weights: "best" or "last". By default, the best weights if the run keeps them, else the last ones.
        weights_at: the folder or URL of the weights, if they were moved or the database records a URL; no other URL is
            opened.
        device: the device of the model.
        plugins: Python files with the task and model of the run, if these are not built in.
        model: the run's model if it is a layer of another program: its class, or a name such as "torch.nn:LSTM" or
            "./cell.py:MyCell". Only this imports its code, because the record or file may be a stranger's. It is not
            needed for a layer that this process has already named.

    Raises:
        UsageError: the run is unknown or keeps no such weights, or their file is missing, truncated, changed or from
            another model; or its model is a layer that nobody has named.
    """
    with _loaded(run, db, weights, weights_at, device, plugins, model) as (trained, _):
        return trained


@checked
@isolated()
def evaluate(
    run: TrainedRun,
    settings: Mapping[str, Any] | None = None,
    *,
    seed: Seed | None = None,
    db: Database | None = None,
    weights: WhichWeights | None = None,
    weights_at: NamedPlace | None = None,
    device: Device = "cpu",
    backend: BackendName = "auto",
    plugins: Files = (),
    model: Model | None = None,
    data_folder: File | None = None,
) -> EvaluationResult:
    """Test the kept weights of a run again, if desired at other lengths or on other data of its task.

    With the settings of the run, on the same machine and device, the values equal the stored ones.

    Args:
        run: as for `load_model`; `db`, `weights`, `weights_at`, `device`, `plugins` and `model` likewise.
        settings: settings of the task that replace the settings of the run, such as {"sequence_length": 400}.
        seed: the seed of the data, which replaces the seed of the run.
        backend: the kernels of the recurrence.
        data_folder: the folder of the data sets; None for the usual one.

    Raises:
        UsageError: as for `load_model`, the task has no such setting, or data is missing or does not fit the weights.
    """
    with (
        use_data_folder(data_folder),
        _loaded(run, db, weights, weights_at, device, plugins, model) as (trained, opened),
    ):
        stored = {}
        if opened is not None:
            results, record = opened
            stored = stored_metrics(results.store, record, trained.iteration)
        return measure(trained, settings, seed, backend, stored)


@checked
@isolated()
def export(
    run: TrainedRun,
    file: FileName,
    form: ExportFormat,
    *,
    steps: Count | None = None,
    batch: Count | None = None,
    db: Database | None = None,
    weights: WhichWeights | None = None,
    weights_at: NamedPlace | None = None,
    plugins: Files = (),
    model: Model | None = None,
    data_folder: File | None = None,
) -> Exported:
    """Write the model of a run to a file for other programs.

    Args:
        run: as for `load_model`; `db`, `weights`, `weights_at`, `plugins` and `model` likewise.
        file: the file; an existing file of the same kind is replaced.
        form: "safetensors" for the weights, "onnx" or "pt2" for the program.
        steps: a fixed number of time steps; None for a program that runs over any number. If torch cannot trace the
            model so, `fixed` of the result says why, and the number is that of the task's test data.
        batch: the number of sequences in an input; None for inputs `[time, features]` without a batch.
        data_folder: the folder of the data sets; None for the usual one.

    Raises:
        UsageError: as for `load_model`, the format is unknown, lacks a package or cannot express the model, or the
            file exists and has another kind.
        StorageError: the file cannot be written.
    """
    with use_data_folder(data_folder), _loaded(run, db, weights, weights_at, "cpu", plugins, model) as (trained, _):
        return write(trained, form, Path(file), steps=steps, batch=batch)


@contextmanager
def _loaded(
    run: Run | str | Path,
    db: Place | None,
    weights: WhichWeights | None,
    weights_at: Place | None,
    device: DeviceName,
    plugins: Sequence[Path],
    model: str | type | None,
) -> Iterator[tuple[TrainedModel, tuple[Results, Run] | None]]:
    """Yield a trained model, and, unless the model comes from a file, the open database with the record of its run."""
    catalog, chosen = Catalog(plugins), pick_device(device)
    if model is not None:
        catalog.named(model)
    if not isinstance(run, Run) and is_file(run):
        trained = load_file(Path(run), chosen, catalog)
        if weights not in (None, trained.kind):
            raise UsageError(f"{run} contains only the {trained.kind} weights: do not choose others")
        yield trained, None
        return
    with Results(named_or_default(db, writes=False)) as results:
        record = results.store.get(run.key if isinstance(run, Run) else str(run))
        yield load_run(results.store, results.db, record, weights, chosen, catalog, weights_at), (results, record)
