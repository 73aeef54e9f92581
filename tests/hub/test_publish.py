"""`publish --hub` and `merge`: all that belongs to a run, once, and nothing of others changes."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.pages import add_run

from orthobench.store import open_store
from orthobench.store.blocks import unpack

SETTINGS = {"sequence_length": "10", "hidden_size": "8"}
RUNS = (
    "SELECT r.key, r.variant, r.condition, r.task, r.model, r.seed, r.preset, r.spec, r.status, r.message, r.device, "
    "r.backend, r.parameter_count, r.metric, r.goal, r.metrics, r.baselines, r.iterations, r.total_iterations, "
    "r.iterations_per_epoch, r.final_value, r.best_value, r.best_iteration, r.seconds, r.peak_memory, r.created_at, "
    "r.updated_at, r.continued_from, e.facts FROM run r JOIN environment e ON e.id = r.environment_id ORDER BY r.key"
)
METRICS = (
    "SELECT r.key, s.split, s.name, m.epoch, m.iteration, m.value, m.kind FROM metric m JOIN run r ON r.id = m.run_id "
    "JOIN series s ON s.id = m.series_id ORDER BY 1, 2, 3, 5"
)
OTHERS = (
    "SELECT r.key, t.epoch, t.iteration, t.vectors FROM trace t JOIN run r ON r.id = t.run_id ORDER BY 1, 3",
    "SELECT r.key, t.name FROM tag t JOIN run r ON r.id = t.run_id ORDER BY 1, 2",
    "SELECT r.key, s.iteration, s.backend, s.started_at, e.facts FROM segment s JOIN run r ON r.id = s.run_id "
    "JOIN environment e ON e.id = s.environment_id ORDER BY 1, 2",
    "SELECT digest, content FROM source ORDER BY 1",
)


def rows(file: str, *queries: str) -> list[list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(file)) as database:
        return [database.execute(query).fetchall() for query in queries]


def meaning(value: Any, here: str) -> Any:
    """Return a value without this folder in its paths, and JSON as what it stands for."""
    if not isinstance(value, str):
        return value
    text = value.replace(f"{here}/", "")
    return json.loads(text) if text.startswith("{") else text


def contents(folder: str = "pub") -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


@pytest.fixture
def trained(orthobench, prepared, tiny_options, tmp_path) -> None:
    """A database `a.db` with trained runs: of a built-in model with a tag, and of a layer from a file."""
    cell = "import torch\n\n\nclass Mine(torch.nn.RNN):\n    pass\n"
    commands = [
        ("run", "adding", name, *tiny_options, "--db", "a.db", "--tag", "t") for name in ("lstm", "./cell.py:Mine")
    ]
    shutil.copytree(prepared(*commands, **{"cell.py": cell}), tmp_path, dirs_exist_ok=True)


@pytest.fixture
def database(orthobench) -> str:
    """A database `a.db` with three finished runs, a diverged one, and one that was interrupted."""
    with open_store("a.db", create=True) as store:
        for seed in range(3):
            add_run(store, "lstm", seed, SETTINGS, final=0.1 + seed)
        add_run(store, "rnn", 0, SETTINGS, status="diverged", message="too large", final=float("inf"))
        add_run(store, "rnn", 1, SETTINGS, status="interrupted")
    return "a.db"


def test_merged_runs_have_all_rows_of_the_published_ones(orthobench, trained):
    done = orthobench("publish", "--hub", "./pub", "a.db")
    assert done.code == 0, done.err
    assert done.out == "./pub: 2 runs added, 0 known\n./pub: with the source code of cell.py\n"
    merged = orthobench("merge", "./pub", "--db", "b.db")
    assert merged.code == 0, merged.err
    assert merged.out.startswith("./pub: 2 runs added to b.db, 0 replaced by one that got further, 0 known")
    assert rows("a.db", METRICS, OTHERS[1], OTHERS[3]) == rows("b.db", METRICS, OTHERS[1], OTHERS[3])
    # the order of the vectors in a block has no meaning
    vectors = [[(*row[:3], unpack(row[3])) for row in rows(file, OTHERS[0])[0]] for file in ("a.db", "b.db")]
    assert vectors[0] == vectors[1]
    here = str(Path.cwd())
    for before, after in zip(rows("a.db", RUNS, OTHERS[2]), rows("b.db", RUNS, OTHERS[2]), strict=True):
        # the path of the layer's file is the only value that stays at home, and the order of JSON has no meaning
        assert [[meaning(value, here) for value in row] for row in before] == [
            [meaning(value, here) for value in row] for row in after
        ]
    assert rows("a.db", OTHERS[3])[0], "the layer's source is stored"


def test_no_path_of_this_machine_is_published(orthobench, trained):
    orthobench("publish", "--hub", "./pub", "a.db")
    assert len(contents()) == 2
    for content in contents().values():
        assert str(Path.cwd()).encode() not in content
        assert f"{Path.home()}/".encode() not in content


def test_values_that_are_not_finite_and_several_writings_of_a_place_survive(orthobench, database):
    assert orthobench("publish", "--hub", f"file://{Path.cwd()}/pub", database).code == 0
    assert orthobench("db", "merge", f"file://{Path.cwd()}/pub", "--db", "b.db").code == 0
    final = [row for row in rows(database, METRICS)[0] if row[0] in {run[0] for run in rows("b.db", RUNS)[0]}]
    assert rows("b.db", METRICS)[0] == final
    assert any(row[6] == "nan" for row in final)


def test_publishing_again_adds_only_what_is_new(orthobench, database):
    first = orthobench("publish", "--hub", "./pub", database, "--model", "lstm")
    assert first.out == "./pub: 3 runs added, 0 known\n"
    before = contents()
    again = orthobench("publish", "--hub", "./pub", database, "--task", "adding", "--where", "seed=0,1")
    assert again.out == "./pub: 1 run added, 2 known, 1 without a result\n"
    after = contents()
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert orthobench("publish", "--hub", "./pub", database).out == "./pub: 0 runs added, 4 known, 1 without a result\n"
    assert contents() == after
    merged = orthobench("merge", "./pub", "--db", "b.db")
    assert merged.out.startswith("./pub: 4 runs added")
    assert orthobench("merge", "./pub", "--db", "b.db").out.endswith("4 known\n")


def test_others_files_stay(orthobench, database):
    """Another publisher has a page of their own, and a run of the same key: neither is replaced."""
    with open_store("other.db", create=True) as store:
        add_run(store, "lstm", 0, SETTINGS, final=0.7)
        add_run(store, "gru", 0, SETTINGS)
    Path("pub").mkdir()
    Path("pub/README.md").write_text("mine")
    orthobench("publish", "--hub", "./pub", "other.db")
    before = contents()
    assert orthobench("publish", "--hub", "./pub", database).out.startswith("./pub: 3 runs added, 1 known")
    after = contents()
    assert {name: after[name] for name in before} == before
    orthobench("merge", "./pub", "--db", "b.db")
    with closing(sqlite3.connect("b.db")) as merged:
        assert merged.execute("SELECT final_value FROM run WHERE model = 'lstm' AND seed = 0").fetchall() == [(0.7,)]


def test_card_names_the_tables(orthobench, database):
    orthobench("publish", "--hub", "./pub", database)
    page = Path("pub/README.md").read_text()
    assert "benchmark" in yaml.safe_load(page.split("---\n")[1])["tags"]
    (file,) = Path("pub/runs").iterdir()
    for name in re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE):
        assert rows(str(file), f"SELECT count(*) FROM {name}")


def test_only_what_belongs_to_the_runs_is_published(orthobench, database):
    with open_store(database) as store:
        add_run(store, "gru", 7, SETTINGS, environment={"cpu": "secret"})
    orthobench("publish", "--hub", "./pub", database, "--model", "lstm")
    (file,) = Path("pub/runs").iterdir()
    assert b"secret" not in file.read_bytes()
    assert rows(str(file), "SELECT count(*) FROM run")[0] == [(3,)]


def test_many_runs_are_several_files(orthobench, database, monkeypatch):
    monkeypatch.setattr("orthobench.hub.publish.RUNS_OF_A_FILE", 3)
    assert orthobench("publish", "--hub", "./pub", database).out.startswith("./pub: 4 runs added")
    assert len(list(Path("pub/runs").iterdir())) == 2
    assert orthobench("merge", "./pub", "--db", "b.db").out.startswith("./pub: 4 runs added")


@pytest.mark.parametrize("place", ["hf://a/b/c", "s3://bucket/x", "../..\0", "", "hf://../x", "http://h/x"])
def test_places_of_another_form_are_refused(orthobench, database, place):
    done = orthobench("publish", "--hub", place, database)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("error: ")


@pytest.mark.parametrize("words", [(), ("site",)])
def test_a_site_needs_a_folder_and_a_database(orthobench, words):
    done = orthobench("publish", *words)
    assert done.code == 2
    assert "such as orthobench publish site results.db" in done.err
