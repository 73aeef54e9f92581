"""Compare models that are tuned alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from orthobench.api.runs import Task, merge
from orthobench.api.sweeps import texts, with_jobs
from orthobench.arrays.in_memory import Data
from orthobench.display.display import Display
from orthobench.options.arguments import AtLeastZero, Count, Database, Give, Models, Name, listed
from orthobench.options.checked import checked
from orthobench.options.data_folder import use_data_folder
from orthobench.options.run_options import RunOptions
from orthobench.planning.tuned_protocol import Planner, protocol
from orthobench.plugins import Catalog
from orthobench.session.session import open_session
from orthobench.session.tuned_session import MORE_SEEDS, TunedColumn, plan_column, train_column

Tasks = Annotated[
    str | Data | Sequence[Task],
    BeforeValidator(listed),
    Give("a task or data, such as 'adding', 'array:data.npz' or Data(...), or a list of them"),
]


@checked
def compare_tuned(
    task: Tasks = (),
    models: Models = (),
    *,
    seeds: Count | None = None,
    settings: Mapping[str, Any] | None = None,
    match_parameters: AtLeastZero | Name | None = None,
    match_state: Count | None = None,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
    **overrides: Any,
) -> list[TunedColumn]:
    """Search for the learning rates of each model alike, and train fresh seeds of what each search finds.

    The searches follow one rule, are judged by validation data, and never use the test data. The same call resumes, and
    trains nothing twice.

    Args:
        task: columns of the protocol, such as "adding" or "S3", tasks, or own data, as in `run`; all columns by
            default.
        models: models and layers of other programs; all built-in models by default.
        seeds: number of fresh seeds of each winner; by default three, and two more for models whose seeds overlap with
            those of the best one.
        settings: hyper-parameters of all runs by name, as in `run`, for example sizes of the task.
        match_parameters: a parameter count for all models, instead of the protocol's.
        match_state: how many numbers every model carries from step to step, instead of equal parameters.
        dry_run: train nothing; each model has its `cost`.
        overrides: hyper-parameters of all runs by name.

    Returns:
        The results of each column, in the order of the protocol. One column is finished before the next begins.

    Raises:
        UsageError: a name or value is invalid, or belongs to the protocol, or no run could start.
        StorageError: the database cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the comparison.
    """
    options, rules = with_jobs(options, jobs), protocol()
    catalog = Catalog(options.plugins)
    listed = [models] if isinstance(models, (str, type)) else [*models]
    names = list(dict.fromkeys(map(catalog.named, listed))) if listed else catalog.built_in("model")
    given = texts(merge(settings, overrides))
    planner = Planner(catalog, given, match_parameters, match_state)
    count = seeds or rules.seeds
    with use_data_folder(options.data_folder):
        chosen = [task] if isinstance(task, (str, Data)) else task
        named = dict.fromkeys(catalog.named_task(each, given) for each in chosen)
        columns = rules.chosen(catalog, list(named), given)
        entries = [[(catalog.word(name), planner.entry(column, name)) for name in names] for column in columns]
    groups = [[run.config for _, entry in own for run in entry.trials] for own in entries]
    with open_session(db, options, display, dry_run, groups) as session:
        more = MORE_SEEDS if seeds is None else 0
        results = []
        for own in entries:
            column = own[0][1].column
            if dry_run:
                results.append(plan_column(session, column, own, count, more))
                continue
            results.append(train_column(session, column, own, count, more))
            if session.is_over_budget():
                break
        return results
