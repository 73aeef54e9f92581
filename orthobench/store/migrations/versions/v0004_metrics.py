"""The declarations of a run's metrics."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def _metric(goal: str, label: str, unit: str = "", is_fraction: bool = False) -> dict[str, object]:
    return {"goal": goal, "unit": unit, "label": label, "is_fraction": is_fraction}


ACCURACY = _metric("max", "accuracy", is_fraction=True)
CROSS_ENTROPY = _metric("min", "cross-entropy", "nats")
IMAGES = {"accuracy": ACCURACY, "cross_entropy": CROSS_ENTROPY}
TASKS = {
    "adding": {"mse": _metric("min", "MSE")},
    "copying": {
        "cross_entropy": CROSS_ENTROPY,
        "accuracy": ACCURACY,
        "recall": _metric("max", "accuracy of the copied symbols", is_fraction=True),
    },
    "mnist": IMAGES,
    "cifar10": IMAGES,
    "ptb": {"bpc": _metric("min", "bits per character"), "accuracy": ACCURACY},
    "timit": {
        "mse_padded": _metric("min", "MSE over all steps", "dB²"),
        "mse_valid": _metric("min", "MSE over the files' own steps", "dB²"),
        "segsnr_db": _metric("max", "segmental SNR", "dB"),
        "stoi": _metric("max", "STOI"),
        "pesq": _metric("max", "PESQ"),
    },
}
"""By task, its metrics as they were when this revision was made. Of another task, a run's row knows the main metric."""


def upgrade() -> None:
    op.add_column("run", sa.Column("metrics", sa.JSON(), nullable=True))
    run = sa.table(
        "run",
        sa.column("task", sa.String()),
        sa.column("metric", sa.String()),
        sa.column("goal", sa.String()),
        sa.column("metrics", sa.JSON()),
    )
    connection = op.get_bind()
    kinds = connection.execute(sa.select(run.c.task, run.c.metric, run.c.goal).distinct()).all()
    for task, metric, goal in kinds:
        main = _metric(goal, metric, is_fraction=metric in ("accuracy", "recall"))
        declared = TASKS.get(task, {})
        if declared.get(metric, {}).get("goal") != goal:  # a plugin's task of this name
            declared = {metric: main}
        same = (run.c.task == task, run.c.metric == metric, run.c.goal == goal)
        connection.execute(run.update().where(*same).values(metrics=declared))
