"""Views for people who read a database in SQL: a row per run and a row per metric value, with names, not numbers.

`create_views` is part of the schema: a change here needs a migration that calls it again.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

# The settings of a run are one object here, because whoever writes a query should not have to know which part of the
# spec holds one. Settings that are null are left out, because SQLite's `json_patch` cannot keep them.
SQLITE: Final = {
    "settings": "json_patch(json_patch(json_extract(run.spec, '$.task_settings'), "
    "json_extract(run.spec, '$.model_settings')), json_extract(run.spec, '$.training'))",
    "tags": "(SELECT group_concat(name, ', ') FROM (SELECT name FROM tag WHERE run_id = run.id ORDER BY name))",
    "baseline": "(SELECT value FROM json_each(run.baselines) WHERE key = run.metric)",
    "train_seconds": "json_extract(run.seconds, '$.train')",
    "machine": "coalesce(json_extract(environment.facts, '$.accelerator'), json_extract(environment.facts, '$.cpu'))",
    "version": "json_extract(environment.facts, '$.packages.orthobench')",
    "git_commit": "json_extract(environment.facts, '$.commit')",
}
POSTGRESQL: Final = {
    "settings": "jsonb_strip_nulls((run.spec -> 'task_settings')::jsonb || (run.spec -> 'model_settings')::jsonb "
    "|| (run.spec -> 'training')::jsonb)",
    "tags": "(SELECT string_agg(name, ', ' ORDER BY name) FROM tag WHERE run_id = run.id)",
    "baseline": "(run.baselines ->> run.metric)::double precision",
    "train_seconds": "(run.seconds ->> 'train')::double precision",
    "machine": "coalesce(environment.facts ->> 'accelerator', environment.facts ->> 'cpu')",
    "version": "environment.facts -> 'packages' ->> 'orthobench'",
    "git_commit": "environment.facts ->> 'commit'",
}
RUNS_FLAT = """
SELECT
    run.key AS run, run.task, run.model, run.seed, run.preset, run.status, {settings} AS settings, {tags} AS tags,
    run.metric, run.goal, run.final_value, run.best_value, run.best_iteration, {baseline} AS baseline,
    run.iterations, run.total_iterations, run.iterations_per_epoch, run.parameter_count, {train_seconds}
    AS train_seconds, run.peak_memory, run.device, run.backend, {machine} AS machine, {version} AS version,
    {git_commit} AS git_commit,
    run.variant, run.condition, run.created_at, run.updated_at
FROM run JOIN environment ON environment.id = run.environment_id
"""
METRICS_FLAT = """
SELECT
    run.key AS run, run.task, run.model, run.seed, series.split, series.name, metric.epoch, metric.iteration,
    metric.value, metric.kind
FROM metric JOIN run ON run.id = metric.run_id JOIN series ON series.id = metric.series_id
"""


def definitions(dialect: str) -> dict[str, str]:
    """Return the queries of the views by name, for SQLite or PostgreSQL."""
    columns = SQLITE if dialect == "sqlite" else POSTGRESQL
    return {"runs_flat": RUNS_FLAT.format(**columns), "metrics_flat": METRICS_FLAT}


def create_views(connection: Connection) -> None:
    """Create the views; a file from elsewhere may have others of these names, which are replaced."""
    for name, query in definitions(connection.dialect.name).items():
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")
