"""`orthobench compare`: compare selections of stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import outcomes
from orthobench.cli.filters import filtered
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json, Paired, Value
from orthobench.display import print_json


@filtered()
def command(
    selections: Annotated[
        list[str],
        typer.Argument(
            metavar="SELECTION",
            help="Two or more selections: the first digits of a run, or conditions such as model=scornn,n=170.",
        ),
    ],
    value: Value = "end",
    paired: Paired = None,
    where: Sequence[str] = (),
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
) -> None:
    """Compare selections of stored runs.

    The first selection is compared with each other selection: settings, environment, code and the metric.
    The test is of ranks: a diverged run counts as the worst. Runs are paired by seed where six seeds or more are
    common, or more for several comparisons, because fewer pairs cannot give p below 5 %. The output names the test, the
    smallest p that these seeds allow, and the share of pairs of runs in which the first selection has the lower value.
    The verdict is "tested apart" at 5 % over all comparisons; better or worse in every seed, if the seeds are
    too few for a test; or "overlaps". Where too few seeds leave it open, commands follow that train as
    many as would decide.

    --task, --model, --tag, --status and --where restrict all selections. `orthobench ls --help` explains conditions.
    """
    compared = api.compare(db, *selections, value=value, paired=paired, where=where)
    if json:
        print_json([outcomes.contrast_record(each, value) for each in compared])
    else:
        outcomes.print_contrasts(compared, value, outcomes.advice_for(compared, db))
