"""Runs of earlier versions of the user's own code are told from its newest version, and from packages."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from orthobench.analysis.own_code import newest_versions, own_code
from orthobench.store import Run
from orthobench.store.tables import Environment

OWN = {"path": "cell.py", "layer": "cell.py:MyCell", "files": {}}
PACKAGE = {"distribution": "torch", "version": "2", "files": {}}


def made(number: int, version: str, place: dict | None = OWN, model: str = "cell.py:MyCell") -> Run:
    """A run that began `number` hours after the others' start, with its code in the environment."""
    revision = version.partition("+")[2].partition(".")[0]
    facts = {"plugins": [place | {"revision": revision}]} if place else {}
    began = datetime(2024, 1, 1) + timedelta(hours=number)
    spec = {"model_version": version}
    return Run(id=number, model=model, spec=spec, created_at=began, environment=Environment(facts=facts))


@pytest.mark.parametrize(
    ("version", "place", "is_own"),
    [
        ("1+94fabc78.2", OWN, True),
        ("3+94fabc78.2", {"path": "plugin.py", "files": {}}, True),
        ("1+53dda66c", PACKAGE, False),
        ("2", None, False),
    ],
    ids=["layer of a file", "plugin file", "package", "built in"],
)
def test_code_of_a_file_is_own_and_a_package_is_not(version, place, is_own):
    assert (own_code(made(1, version, place)) is not None) is is_own


def test_another_plugin_of_the_run_does_not_make_a_package_own():
    run = made(1, "1+53dda66c", PACKAGE)
    run.environment.facts["plugins"].append(OWN | {"revision": "94fabc78"})
    assert own_code(run) is None


def test_version_of_the_run_that_began_last_counts():
    runs = [made(3, "1+bb.2"), made(1, "1+aa.2"), made(2, "1+aa.2"), made(4, "1+bb.2")]
    kept, earlier = newest_versions(runs)
    assert ([run.id for run in kept], earlier) == ([3, 4], {"cell.py:MyCell": 2})
    kept, earlier = newest_versions([*runs, made(5, "1+aa.2")])  # the edit was taken back
    assert ([run.id for run in kept], earlier) == ([1, 2, 5], {"cell.py:MyCell": 2})


def test_versions_of_packages_and_of_built_in_models_all_stay():
    packages = [made(number, f"1+{text}", PACKAGE, "torch.nn:GRU") for number, text in ((1, "aa"), (2, "bb"))]
    runs = [*packages, *(made(number, str(number), None, "lstm") for number in (3, 4))]
    assert newest_versions(runs) == (runs, {})
