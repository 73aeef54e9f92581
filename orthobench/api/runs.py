"""Train one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from orthobench.arrays.in_memory import Data
from orthobench.display.display import Display
from orthobench.display.progress import default_display
from orthobench.errors import UsageError
from orthobench.options.arguments import Database, Give, Model, Name, Preset, Seed
from orthobench.options.checked import checked
from orthobench.options.data_folder import use_data_folder
from orthobench.options.run_options import OPTIONS, RunOptions, names_of
from orthobench.plugins import Catalog
from orthobench.session.single_run import train_one
from orthobench.spec.resolve import default_preset, resolve
from orthobench.store import Run

Task = Annotated[Name | Data, Give("the name of a task, such as 'adding', or data, 'array:data.npz' or Data(...)")]
SWEEP_ARGUMENTS = {"models", "seeds", "grid", "match_parameters", "trials", "dry_run"}
"""The arguments of `sweep` and `tune` that a single run does not have; none of them is the name of a setting."""


@checked
def run(
    task: Task,
    model: Model,
    *,
    preset: Preset | None = None,
    seed: Seed = 0,
    db: Database | None = None,
    force: bool = False,
    extend: bool = False,
    settings: Mapping[str, Any] | None = None,
    options: RunOptions | None = None,
    display: Display | None = None,
    **overrides: Any,
) -> Run:
    """Train one model on one task in this process, and return the run's record.

    A finished run is only looked up, and an interrupted run resumes from its checkpoint.

    Args:
        task: the name of a task, such as "adding"; or own data, as "array:data.npz" or `Data`.
        model: the name of a model, such as "scornn"; or a layer of another program, by a name such as
            "torch.nn:GRU", or its class.
        preset: "paper" for the settings of the paper, "quick" for a run of a minute or two. The default is "quick" for
            a model or task that is not built in, and else "paper".
        db: a database file or an SQLAlchemy URL; a missing file is created. The default is results.db, or runs.db if
            results.db is protected.
        force: delete the results of the run and train it again.
        extend: start from the training state that a shorter run with the same settings has kept, if there is one. The
            numbers are the same as if the run had trained from the beginning.
        settings: hyper-parameters by name, needed for names that are not Python identifiers or that are arguments of
            this function.
        overrides: hyper-parameters by name, such as `hidden_size=64`.

    Raises:
        UsageError: a name or value is invalid, or data is missing.
        RunLockedError: another process trains this run.
        StorageError: the database or a checkpoint cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the run.
    """
    for name in SWEEP_ARGUMENTS & overrides.keys():
        raise UsageError(f"`{name}` is an argument of ob.sweep, which trains many runs: call ob.sweep, or leave it out")
    settings = merge(settings, overrides)
    options = options or RunOptions()
    catalog = Catalog(options.plugins)
    with use_data_folder(options.data_folder):
        task, model = catalog.named_task(task, settings), catalog.named(model)
        preset = preset or default_preset(catalog, task, [model])
        config = resolve(catalog, task, model, settings, preset, seed)
        return train_one(config, db, options, display or default_display(), force, extend)


def merge(settings: Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the hyper-parameters of both mappings.

    Raises:
        UsageError: an override is an execution option, or both have the same name.
    """
    for name in overrides:
        if name in OPTIONS:
            record = "RunOptions" if name in names_of(RunOptions) else "SweepOptions"
            raise UsageError(f"{name} is an execution option: pass options={record}({name}=...)")
        if name in (settings or {}):
            raise UsageError(f"{name} is given twice: leave it out of settings, or of the arguments")
    return {**(settings or {}), **overrides}
