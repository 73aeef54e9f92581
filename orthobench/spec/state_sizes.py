"""The sizes of the states of stored runs, for the report.

Only built-in tasks and models are counted, because a stored name imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from orthobench.errors import OrthobenchError
from orthobench.plugins import Catalog
from orthobench.spec.index import built_in
from orthobench.spec.resolve import RunConfig, RunSpec

_known: dict[str, int | None] = {}
"""The sizes by variant, or None if the model cannot be built; kept for a server, which renews its page."""


def state_sizes(specs: Mapping[str, RunSpec]) -> dict[str, int]:
    """Return how many real numbers the model of each run carries from step to step, without those that are unknown.

    Args:
        specs: the canonical forms of runs, by names of the caller's choice.
    """
    from orthobench.spec.model_sizes import Counter  # here, because it loads torch, which most reports do without

    plugins, counter, catalog, sizes = built_in()["plugins"], Counter(), Catalog(), {}
    for name, spec in specs.items():
        if f"task/{spec.task}" not in plugins or f"model/{spec.model}" not in plugins:
            continue
        if spec.variant not in _known:
            try:
                _known[spec.variant] = counter.state_size(RunConfig(spec, catalog))
            except OrthobenchError:
                _known[spec.variant] = None
        if size := _known[spec.variant]:
            sizes[name] = size
    return sizes
