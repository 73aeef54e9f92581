"""Views for people who read a database in SQL: a row per run, metric value and gradient norm, with names, not numbers.

Every upgrade of the schema creates them again, so a change here needs a migration, though an empty one.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from orthobench.store.blocks import PLAIN, WIDTH

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


LINE: Final = "CAST(substr(vectors, 1, instr(vectors, x'0A')) AS TEXT)"
"""The first line of a block, which has the length of each plain vector by name."""
FIRST_BYTE: Final = (
    "instr(vectors, x'0A') + 1 "
    f"+ {WIDTH} * CAST((SELECT total(value) FROM json_each({LINE}) WHERE id < vector.id) AS INTEGER)"
)
"""The position of a plain vector in its block, from 1."""
BITS: Final = " + ".join(
    f"(instr('0123456789ABCDEF', substr(digits, {digit + 1}, 1)) - 1 << {4 * (digit ^ 1)})"
    for digit in range(2 * WIDTH)
)
"""The bits of a float32 number from the hexadecimal digits of its bytes, of which the lowest comes first."""
EXPONENT, FRACTION = "(bits.value >> 23 & 255)", "(bits.value & 0x7FFFFF)"
# SQLite makes no float of bits, and often has no power function. The power of two is the product of five equal factors
# and the rest, because a whole number has 64 bits. All products are exact in double precision.
FACTOR: Final = f"((1 << {EXPONENT} / 5) / {float(1 << 30)})"
VALUE: Final = (
    f"(1.0 - 2 * (bits.value >> 31)) * ({FRACTION} + ({EXPONENT} > 0) * 0x800000) "
    f"* {' * '.join([FACTOR] * 5)} * (1 << max({EXPONENT}, 1) % 5)"
)
HALF: Final = f"(length(digits) / {4 * WIDTH} * {2 * WIDTH})"
# A vector's digits are halved until each part is a number. Every part is shorter than the one before, so that this ends
# in a damaged block as well. Reading the numbers one by one from the block would read a long block as many times.
GRADIENT_NORMS: Final = f"""
SELECT
    run.key AS run, run.task, run.model, run.seed, trace.epoch, trace.iteration,
    substr(vector.key, {len(PLAIN) + 1}) AS state, bits.key AS step,
    CASE WHEN {EXPONENT} < 255 THEN {VALUE} END AS value,
    CASE WHEN {EXPONENT} < 255 THEN NULL WHEN {FRACTION} > 0 THEN 'nan' WHEN bits.value >> 31 THEN '-inf' ELSE 'inf' END
    AS kind
FROM trace JOIN run ON run.id = trace.run_id, json_each({LINE}) AS vector, json_each((
    WITH RECURSIVE part(first, digits) AS (
        SELECT 0, hex(substr(vectors, {FIRST_BYTE}, {WIDTH} * vector.value))
        UNION ALL
        SELECT first + {HALF} * side, substr(digits, 1 + {HALF} * side, {HALF} + length(digits) * side)
        FROM part, (SELECT 0 AS side UNION ALL SELECT 1) WHERE {HALF} > 0
    )
    SELECT json_group_array({BITS})
    FROM (SELECT digits FROM part WHERE length(digits) = {2 * WIDTH} ORDER BY first)
)) AS bits
"""


def definitions(dialect: str) -> dict[str, str]:
    """Return the queries of the views by name, for SQLite or PostgreSQL; only SQLite has the view of gradient norms."""
    columns = SQLITE if dialect == "sqlite" else POSTGRESQL
    views = {"runs_flat": RUNS_FLAT.format(**columns), "metrics_flat": METRICS_FLAT}
    return views | {"gradient_norms": GRADIENT_NORMS} if dialect == "sqlite" else views


def drop_views(connection: Connection) -> None:
    """Drop the views, because on PostgreSQL no column can be changed that one of them reads."""
    for name in definitions(connection.dialect.name):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def create_views(connection: Connection) -> None:
    """Create the views, which must not exist."""
    for name, query in definitions(connection.dialect.name).items():
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")
