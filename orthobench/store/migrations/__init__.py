"""Alembic's scripts, which `orthobench.store.open` runs to create or upgrade a database."""
