"""Tags on runs."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "tag",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_tag_run_id_run", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name", name="pk_tag"),
    )
    op.create_index("ix_tag_name", "tag", ["name"])
