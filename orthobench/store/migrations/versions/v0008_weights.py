"""The files of kept weights, and the run that a run continued."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("run", sa.Column("continued_from", sa.String(), nullable=True))
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
