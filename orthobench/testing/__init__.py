"""The contract of plugins, for their authors to run.

    from orthobench.testing import problems

    def test_my_model():
        assert problems("model", MyModel) == []

or without writing a test: `orthobench plugins --plugin my_model.py --check`. What is checked stands in the names
and first lines of the functions in `orthobench.testing.model`, `.task` and `.probe`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orthobench.plugins import PluginKind
from orthobench.testing import model, probe, task

CHECKS: dict[PluginKind, tuple[Callable[[Any], None], ...]] = {
    "model": model.CHECKS,
    "task": task.CHECKS,
    "probe": probe.CHECKS,
}


def problems(kind: PluginKind, plugin: Any) -> list[str]:
    """What a task, model or probe class does not meet: one line a broken point, none if it meets the contract."""
    found = []
    for check in CHECKS[kind]:
        try:
            check(plugin)
        except Exception as error:
            told = str(error).splitlines()[0] if str(error) else type(error).__name__
            found.append(f"{check.__name__}: {told}")
    return found
