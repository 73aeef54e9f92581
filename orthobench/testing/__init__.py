"""The contract of plugins, as tests that their authors can run.

    from orthobench.testing import problems

    def test_my_model():
        assert problems("model", MyModel) == []

Without writing a test, use `orthobench plugins --plugin my_model.py --check`. The checks are the functions in
`orthobench.testing.model_checks`, `.task` and `.probe`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orthobench.errors import MissingDataError
from orthobench.isolation import isolated
from orthobench.plugins import PluginKind
from orthobench.system.own_code import message_of
from orthobench.testing import model_checks, probe_checks, task_checks

CHECKS: dict[PluginKind, tuple[Callable[[Any], None], ...]] = {
    "model": model_checks.CHECKS,
    "task": task_checks.CHECKS,
    "probe": probe_checks.CHECKS,
}


def problems(kind: PluginKind, plugin: Any) -> list[str]:
    """Return a line for each check that a task, model or probe class fails.

    Raises:
        MissingDataError: the data of a task is missing, so the task cannot be checked.
    """
    failures = []
    for check in CHECKS[kind]:
        try:
            with isolated():
                check(plugin)
        except MissingDataError:
            raise
        except Exception as error:
            failures.append(f"{check.__name__}: {message_of(error)}")
    return failures
