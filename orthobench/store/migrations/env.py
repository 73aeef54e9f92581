"""The script that Alembic runs to migrate, in the connection and transaction that `upgrade` passes to it."""

from alembic import context

from orthobench.store.tables import VERSION_TABLE, Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,  # Alembic's default name collides when two tools share a database
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
