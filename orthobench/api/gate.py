"""Check every model against the baseline."""

from __future__ import annotations

from pathlib import Path

from orthobench.display.display import Display
from orthobench.gate.check import CheckResult, check_baseline
from orthobench.gate.result_files import cells as cells
from orthobench.gate.result_files import refuse_files as refuse_files
from orthobench.gate.result_files import write_files as write_files
from orthobench.options.arguments import Count, Database, FileName, Seed, Texts
from orthobench.options.checked import checked
from orthobench.options.run_options import RunOptions, SweepOptions


@checked
def check(
    baseline: FileName = "checks/baseline.toml",
    *,
    only: Texts = (),
    where: Texts = (),
    seeds: Count | None = None,
    first_seed: Seed | None = None,
    db: Database | None = None,
    db_only: bool = False,
    for_update: bool = False,
    fail_on_speed: bool = False,
    history: Database | None = None,
    options: RunOptions | None = None,
    display: Display | None = None,
) -> CheckResult:
    """Train the runs of a baseline in this process, and compare them with the baseline's values.

    Args:
        only: restrict to these runs, such as "adding/lstm".
        where: restrict to runs that meet these conditions, by name, task, model, preset or a setting, as "n=170,360".
        seeds: number of seeds, overriding the baseline.
        first_seed: the first seed, overriding the baseline.
        db: store the runs in this database, and use the runs that it contains; None for a temporary one.
        db_only: train nothing and only use the runs in the database.
        for_update: also train runs that the baseline cannot judge, for `CheckResult.update_baseline`.
        fail_on_speed: count slower steps as failures.
        history: also store the verdicts, with the commit, in this database; its report plots them over time.

    Raises:
        UsageError: the baseline is invalid, or a run cannot start.
        Stopped: the user pressed Ctrl-C.
    """
    return check_baseline(
        Path(baseline),
        only,
        where,
        seeds,
        first_seed,
        db,
        db_only,
        for_update,
        fail_on_speed,
        history,
        SweepOptions.of(options),
        display,
    )
