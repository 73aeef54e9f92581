"""What Alembic runs to migrate: one transaction, on the connection that `open_store` hands it."""

from alembic import context

from orthobench.store.open import VERSION_TABLE
from orthobench.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,  # Alembic's default name collides when two tools share a database
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
