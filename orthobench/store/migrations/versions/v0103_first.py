"""The schema of version 0.1.0. Its number is not 0100, because databases of before the release have it already."""

import sqlalchemy as sa
from alembic import op

revision = "0103"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "environment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_environment"),
        sa.UniqueConstraint("digest", name="uq_environment_digest"),
    )
    op.create_table(
        "series",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("split", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
        sa.UniqueConstraint("split", "name", name="uq_series_split"),
    )
    op.create_table(
        "source",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_source"),
        sa.UniqueConstraint("digest", name="uq_source_digest"),
    )
    op.create_table(
        "benchmark",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("results", sa.JSON(), nullable=False),
        sa.Column("write_token", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_benchmark_environment_id_environment"),
        sa.PrimaryKeyConstraint("id", name="pk_benchmark"),
    )
    op.create_index("ix_benchmark_name", "benchmark", ["name"])
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("variant", sa.String(), nullable=False),
        sa.Column("condition", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("preset", sa.String(), nullable=True),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=True),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("backend", sa.String(), nullable=True),
        sa.Column("parameter_count", sa.Integer(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("goal", sa.String(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=True),
        sa.Column("baselines", sa.JSON(), nullable=False),
        sa.Column("iterations", sa.Integer(), nullable=False),
        sa.Column("total_iterations", sa.Integer(), nullable=False),
        sa.Column("iterations_per_epoch", sa.Integer(), nullable=False),
        sa.Column("final_value", sa.Float(), nullable=True),
        sa.Column("best_value", sa.Float(), nullable=True),
        sa.Column("best_iteration", sa.Integer(), nullable=True),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("peak_memory", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.Column("write_token", sa.String(), nullable=True),
        sa.Column("continued_from", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_run_environment_id_environment"),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.UniqueConstraint("key", name="uq_run_key"),
    )
    op.create_index("ix_run_condition", "run", ["condition"])
    op.create_index("ix_run_model", "run", ["model"])
    op.create_index("ix_run_task", "run", ["task"])
    op.create_index("ix_run_variant", "run", ["variant"])
    op.create_table(
        "metric",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("kind", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_metric_run_id_run", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_metric_series_id_series", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_metric"),
        sa.UniqueConstraint("run_id", "series_id", "iteration", name="uq_metric_run_id"),
    )
    op.create_table(
        "segment",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("backend", sa.String(), nullable=True),
        sa.Column("write_token", sa.String(), nullable=True),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_segment_environment_id_environment"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_segment_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "iteration", name="pk_segment"),
    )
    op.create_table(
        "tag",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_tag_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name", name="pk_tag"),
    )
    op.create_index("ix_tag_name", "tag", ["name"])
    op.create_table(
        "trace",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("vectors", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_trace_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_trace"),
    )
    op.create_index("ix_trace_run_id", "trace", ["run_id", "iteration"])
    op.create_table(
        "weights",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_weights_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "kind", name="pk_weights"),
    )
