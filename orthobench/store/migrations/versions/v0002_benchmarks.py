"""Benchmarks beside the runs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "benchmark",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("results", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_benchmark_environment_id_environment"),
        sa.PrimaryKeyConstraint("id", name="pk_benchmark"),
    )
    op.create_index("ix_benchmark_name", "benchmark", ["name"])
