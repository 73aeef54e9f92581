"""Add the views `runs_flat` and `metrics_flat`, which any SQL program can read."""

from alembic import op

from orthobench.store.views import create_views

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    create_views(op.get_bind())
