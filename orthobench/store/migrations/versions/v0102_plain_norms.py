"""Keep the gradient norms of each block without compression, and add the view `gradient_norms`, which reads them."""

import sqlalchemy as sa
from alembic import op

from orthobench.store.tables import pack, unpack
from orthobench.store.views import create_views

revision = "0102"
down_revision = "0101"

TRACE = sa.table("trace", sa.column("id", sa.Integer), sa.column("vectors", sa.LargeBinary))
ROWS_AT_ONCE = 500


def upgrade() -> None:
    connection = op.get_bind()
    ids = connection.execute(sa.select(TRACE.c.id).order_by(TRACE.c.id)).scalars().all()
    blocks = sa.select(TRACE)
    if connection.dialect.name == "sqlite":
        blocks = blocks.where(sa.func.typeof(TRACE.c.vectors) == "blob")  # a damaged row may have any value
    change = sa.update(TRACE).where(TRACE.c.id == sa.bindparam("row")).values(vectors=sa.bindparam("block"))
    for start in range(0, len(ids), ROWS_AT_ONCE):
        range_ = TRACE.c.id.between(ids[start], ids[start : start + ROWS_AT_ONCE][-1])
        changed = []
        for row, block in connection.execute(blocks.where(range_)):
            try:
                changed.append({"row": row, "block": pack(unpack(block))})
            except ValueError:
                continue  # a damaged block stays, and readers leave it out as before
        if changed:
            connection.execute(change, changed)
    create_views(connection)
