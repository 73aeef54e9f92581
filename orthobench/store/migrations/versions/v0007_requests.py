"""The preset of a run, and the hash of the command that asked for it; both are unknown for older runs."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("run", sa.Column("preset", sa.String(), nullable=True))
    op.add_column("run", sa.Column("request", sa.String(), nullable=True))
    op.create_index("ix_run_request", "run", ["request"])
