"""Alembic's scripts; run by `orthobench.store.open` whenever a database is made or behind."""
