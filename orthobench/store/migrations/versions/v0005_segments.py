"""The segments of a run, each with its environment; the last transaction of a run and of a benchmark."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for table in ("run", "benchmark"):
        op.add_column(table, sa.Column("write_token", sa.String(), nullable=True))
    segment = op.create_table(
        "segment",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("backend", sa.String(), nullable=True),
        sa.Column("write_token", sa.String(), nullable=True),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_segment_run_id_run", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_segment_environment_id_environment"),
        sa.PrimaryKeyConstraint("run_id", "iteration", name="pk_segment"),
    )
    run = sa.table("run", *map(sa.column, ("id", "environment_id", "backend", "created_at")))
    whole = sa.select(run.c.id, sa.literal(0), run.c.environment_id, run.c.backend, run.c.created_at)
    columns = ["run_id", "iteration", "environment_id", "backend", "started_at"]
    op.get_bind().execute(segment.insert().from_select(columns, whole))
