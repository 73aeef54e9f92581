"""The choice of tests of `make quick`, and its limit of time."""

from __future__ import annotations

import pytest

from workshop.quick import Minute, selection
from workshop.rooms import ROOT, table

IMPORTS = {"cli": {"store", "errors"}, "store": {"errors"}, "errors": set()}
"""Three rooms, from the top floor down."""


@pytest.mark.parametrize(
    ("changed", "first", "absent"),
    [
        (["orthobench/store/reader.py"], [["tests/store"], ["tests/cli"]], "tests/errors"),
        (["orthobench/cli/run.py"], [["tests/cli"]], "tests/store"),
        (["orthobench/errors.py"], [["tests/store", "tests/cli"]], "tests/repository"),
        (
            ["tests/data/test_images.py", "orthobench/cli/run.py"],
            [["tests/data/test_images.py"], ["tests/cli"]],
            "tests/data",
        ),
        (["models/lstm.py"], [["tests/models"]], "tests/repository"),
        (["README.md"], [["tests/repository"]], "tests/cli"),
        (["workshop/website/pages.py"], [["tests/docs"], ["tests/repository"]], "tests/cli"),
        (["tests/data/test_deleted.py"], [], "tests/data"),
    ],
)
def test_tests_of_the_touched_room_come_before_those_of_its_importers(changed, first, absent):
    chosen = selection(changed, IMPORTS)
    assert chosen == first
    assert not any(absent in group for group in chosen)


def test_new_model_and_task_are_tested_where_their_entries_are():
    everywhere = {"tests/cli/test_cite.py", "tests/gate/test_project_baseline.py", "tests/repository/test_index.py"}
    of_models = {
        "tests/reporting/test_styles.py",
        "tests/nn/test_layer.py::test_type_checkers_know_every_layer_and_cell",
    }
    for path, more in {"models/janet.py": of_models, "tasks/order.py": set()}.items():
        first, *_ = selection([path], IMPORTS, added=[path])
        assert set(first) == everywhere | more
        for file, _, name in (test.partition("::") for test in first):
            assert f"def {name or 'test_'}" in (ROOT / file).read_text("utf-8")
    for path in ("models/_base.py", "models/README.md", "orthobench/probes/new.py"):
        assert not everywhere & {test for group in selection([path], IMPORTS, added=[path]) for test in group}


def test_what_guides_a_new_model_comes_before_changed_tests():
    own = ["tests/recurrence/test_cpu.py", "tests/recurrence/test_reference.py"]
    first, second, *_ = selection(["models/janet.py", *own], IMPORTS, added=["models/janet.py"])
    assert "tests/gate/test_project_baseline.py" in first
    assert set(second) == set(own)


def test_every_room_of_the_package_is_found_with_tests():
    """A room without tests of its name is tested by those of the rooms that import it."""
    imports = table()
    for room in set(imports) - {"__main__", "orthobench"}:
        assert selection([f"orthobench/{room}.py"], imports), room


def test_no_test_begins_after_the_time(items):
    minute = Minute(seconds=0)
    minute.begin("tests/store", 1)
    assert [minute.pytest_runtest_protocol(item) for item in items] == [True, True]
    assert minute.left == {"tests/store": 2}
    assert Minute(seconds=3600).pytest_runtest_protocol(items[0]) is None


@pytest.fixture
def items(request):
    """Two items of pytest, which nothing reads."""
    return [request.node, request.node]


def test_folders_of_tests_have_the_names_of_rooms_or_of_what_they_test():
    known = {*table(), "docs", "files", "repository", "support"}
    assert {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[0] not in "._"} <= known
