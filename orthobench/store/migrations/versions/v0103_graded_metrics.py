"""Say in the metrics of runs which tasks are graded, as tasks declare it now."""

import sqlalchemy as sa
from alembic import op

revision = "0103"
down_revision = "0102"

RUN = sa.table("run", sa.column("id"), sa.column("task"), sa.column("metric"), sa.column("metrics", sa.JSON))
GRADED = ("cifar10", "fitzhugh_nagumo", "mnist", "ptb", "timit")
OWN_DATA = ("classification:%", "regression:%", "forecast:%")


def upgrade() -> None:
    connection = op.get_bind()
    graded = sa.or_(RUN.c.task.in_(GRADED), *map(RUN.c.task.like, OWN_DATA))
    runs = sa.select(RUN.c.id, RUN.c.metric, RUN.c.metrics).where(graded)
    if connection.dialect.name == "sqlite":  # a damaged row may have any value
        runs = runs.where(sa.func.typeof(RUN.c.metrics) == "text", sa.func.json_valid(RUN.c.metrics))
    change = sa.update(RUN).where(RUN.c.id == sa.bindparam("row")).values(metrics=sa.bindparam("new", type_=sa.JSON))
    changed = []
    for row, metric, metrics in connection.execute(runs):
        if isinstance(metrics, dict) and isinstance(metrics.get(metric), dict):
            changed.append({"row": row, "new": {**metrics, metric: {**metrics[metric], "is_graded": True}}})
    if changed:
        connection.execute(change, changed)
