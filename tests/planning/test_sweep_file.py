"""Sweeps in files: the same runs as the command line's, and one clear line for a slip."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.executors.slurm_settings import read_settings
from orthobench.gate.baseline import read_baseline
from orthobench.planning.file import SweepFile, read_file, sweep_schema
from orthobench.planning.grid import read_grid
from orthobench.planning.listed import runs_in
from orthobench.plugins import Catalog

ROOT = Path(__file__).parents[2]
EXAMPLE = """
task = "adding"
models = ["scornn"]
seeds = 2
preset = "quick"

[settings]
epochs = 3
shuffle = true

[grid]
learning_rate = [1e-3, 0.0001]
sequence_length = "100..400:x2"
"(n,rho)" = [[170, 17], [360, 36]]
"""
SAME = """sweep adding --models scornn --seeds 2 --preset quick -s epochs=3 -s shuffle=true
    --grid learning_rate=1e-3,1e-4 --grid sequence_length=100,200,400 --grid (n,rho)=(170,17),(360,36)"""


def keys(outcome) -> list[str]:
    assert outcome.code == 0, outcome.err
    return re.findall(r"^ ?([0-9a-f]{16})\b", outcome.out, re.M)


def test_file_and_command_line_name_the_same_runs(orthobench, tmp_path):
    (tmp_path / "sweep.toml").write_text(EXAMPLE)
    command_line_keys = keys(orthobench(*SAME.split(), "--dry-run", "--no-profile"))
    assert len(command_line_keys) == 2 * 2 * 3 * 2
    assert keys(orthobench("sweep", "--file", "sweep.toml", "--dry-run", "--no-profile")) == command_line_keys
    wider = keys(orthobench("sweep", "--file", "sweep.toml", "--seeds", "3", "--dry-run", "--no-profile"))
    assert wider[: len(command_line_keys)] == command_line_keys
    assert len(wider) == 36


PLUGIN = """
from orthobench.models.rnn import RNN


class Mine(RNN):
    title = "Mine"
"""


@pytest.mark.parametrize(
    ("command", "models"),
    [("sweep", 'models = ["my_cell"]'), ("run", 'model = "my_cell"'), ("tune", 'models = ["my_cell"]')],
)
def test_file_names_its_plugins_next_to_itself(orthobench, tiny_options, tmp_path, command, models):
    """From another folder than the file's."""
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "my_cell.py").write_text(PLUGIN)
    settings = "\n".join(word.replace("=", " = ") for word in tiny_options if "=" in word)
    grid = "[grid]\nhidden_size = [4, 5]\n" if command == "tune" else ""
    settings = re.sub("hidden_size.*", "", settings) if grid else settings
    text = f'task = "adding"\n{models}\nplugins = ["my_cell.py"]\n[settings]\n{settings}\n{grid}'
    (folder / "plan.toml").write_text(text)
    words = ["--trials", "1"] if command == "tune" else []
    done = orthobench(command, "--file", "plan/plan.toml", *words)
    assert done.code == 0, done.err
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        assert connection.execute("SELECT model, status FROM run").fetchall() == [("my_cell", "finished")]
    (folder / "plan.toml").write_text(text.replace("my_cell.py", "none.py"))
    refused = orthobench(command, "--file", "plan/plan.toml", *words)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "plugin file plan/none.py cannot be read" in refused.err


scalar = st.one_of(st.booleans(), st.integers(-999, 999), st.floats(1e-6, 1e6), st.text("ab1.", min_size=1))
files = st.fixed_dictionaries(
    {"task": st.text("ab", min_size=1), "models": st.lists(st.text("ab", min_size=1), min_size=1)},
    optional={
        "seeds": st.integers(1, 99),
        "preset": st.sampled_from(["paper", "quick"]),
        "settings": st.dictionaries(st.text("abc", min_size=1), scalar, max_size=3),
        "grid": st.dictionaries(st.text("abc", min_size=1), st.lists(scalar, min_size=1, max_size=3), max_size=3),
    },
)


@given(content=files)
def test_written_file_is_read_back(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "sweep.toml"
    path.write_text(tomlkit.dumps(content))
    read = read_file(path, SweepFile)
    assert read.model_dump(exclude_unset=True) == content
    assert read.overrides().keys() == content.get("settings", {}).keys()


def test_values_are_parsed_like_the_command_lines(tmp_path):
    (tmp_path / "a.toml").write_text(
        'task = "t"\nmodels = ["m"]\n[settings]\nprobes = ["a", "b"]\nshuffle = false\nlearning_rate = 1e-3\n'
        '[grid]\npermuted = [true, false]\nhidden_size = "4..8:x2"\n'
    )
    read = read_file(tmp_path / "a.toml", SweepFile)
    assert read.overrides() == {"probes": "a,b", "shuffle": "false", "learning_rate": "0.001"}
    assert read.axes() == read_grid({"permuted": "true,false", "hidden_size": "4,8"})


BAD = [
    ("sedes = 5", "unknown key of bad.toml 'sedes': did you mean seeds?"),
    ("model = 'rnn'", "unknown key of bad.toml 'model': did you mean models?"),
    ("seeds = 0", "bad.toml: seeds should be a whole number of seeds from 1 to "),
    ("seeds = 'five'", "bad.toml: seeds should be a whole number of seeds from 1 to "),
    ("preset = 'fast'", 'bad.toml: preset should be "paper" or "quick"'),
    ("task = 3", 'bad.toml: task should be the name of a task, such as "adding"'),
    ("models = []", 'bad.toml: models should be a list of models, such as ["scornn"'),
    ("models = 'rnn'", "bad.toml: models should be a list of models"),
    ("task = ", "bad.toml is not TOML: Invalid value (at end of document)"),
    ("[settings]\nhidden_sise = 3", "unknown setting 'hidden_sise': did you mean hidden_size?"),
    ("[settings]\nhidden_size = -3", "hidden_size=-3: should be greater than or equal to 1"),
    ("[settings]\nepochs = 1979-05-27", "bad.toml: settings.epochs should be a value: text, a number"),
    ("[grid]\nlearning_rte = [1]", "unknown setting 'learning_rte': did you mean learning_rate"),
    ("[grid]\nepochs = 3", 'bad.toml: grid.epochs should be a text such as "1e-3,1e-4"'),
    ("[grid]\nepochs = []", "bad.toml: grid.epochs should be a text"),
    ("[grid]\nepochs = [1, 1]", "grid 'epochs' names a value twice: 1"),
    ("[grid]\nepochs = '1..3'", "is not a range"),
    ("[grid]\n'(n,rho)' = [170, 17]", "grid '(n,rho)': (170) should have 2 values"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_invalid_line_is_one_error_line(orthobench, tmp_path, line, message):
    start = {"task": "task = 'adding'", "models": "models = ['scornn']"}
    key = line.partition(" ")[0]
    (tmp_path / "bad.toml").write_text(
        "\n".join([*(toml_line for name, toml_line in start.items() if name != key), line])
    )
    outcome = orthobench("sweep", "--file", "bad.toml", "--dry-run")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_missing_file_or_key_is_reported(tmp_path):
    with pytest.raises(UsageError, match=r"none\.toml cannot be read: No such file"):
        read_file(tmp_path / "none.toml", SweepFile)
    (tmp_path / "half.toml").write_text("task = 'adding'\n")
    with pytest.raises(UsageError, match=r"half\.toml: models is missing"):
        read_file(tmp_path / "half.toml", SweepFile)


@pytest.mark.parametrize("more", [["adding"], ["--models", "rnn"], ["-s", "epochs=1"], ["--grid", "epochs=1"]])
def test_file_with_other_arguments_is_refused(orthobench, tmp_path, more):
    (tmp_path / "sweep.toml").write_text(EXAMPLE)
    outcome = orthobench("sweep", "--file", "sweep.toml", *more, "--dry-run")
    assert outcome.code == 2
    assert "--file names the runs already" in outcome.err


def test_published_schema_matches_the_reader(orthobench):
    assert orthobench("sweep", "--schema").out.strip() == sweep_schema()
    assert (ROOT / "docs" / "sweep.schema.json").read_text("utf-8").strip() == sweep_schema()
    assert set(json.loads(sweep_schema())["properties"]) == set(SweepFile.model_fields)


def test_example_of_the_guide_matches_the_schema(tmp_path):
    (example,) = re.findall(r"```toml\n(task.*?)```", (ROOT / "docs" / "train.md").read_text("utf-8"), re.S)
    (tmp_path / "sweep.toml").write_text(example)
    read = read_file(tmp_path / "sweep.toml", SweepFile)
    assert (read.task, read.seeds) == ("adding", 5)
    assert [axis.names for axis in read.axes()][-1] == ("n", "rho")


def test_sweep_names_the_model_that_lacks_a_setting(orthobench):
    outcome = orthobench("sweep", "adding", "--models", "scornn,lstm", "-s", "negative_ones=3")
    assert outcome.code == 2
    assert outcome.err.startswith("error: lstm: unknown setting 'negative_ones'")


def test_range_without_a_step_suggests_tune(orthobench):
    outcome = orthobench("sweep", "adding", "--models", "lstm", "--grid", "learning_rate=1e-4..1e-2")
    assert (outcome.code, "for a search of `orthobench tune`" in outcome.err) == (2, True)


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ('task = "adding"\nmodels = ["rnn"]\n', lambda file: read_file(file, SweepFile).task == "adding"),
        ('[[runs]]\npaper = "helfrich2018"\ntable = "1"\n', lambda file: len(runs_in(file, Catalog())) > 0),
        ('[[run]]\ntask = "adding"\nmodel = "rnn"\n', lambda file: len(read_baseline(file).run) == 1),
        ('partition = "gpu"\n', lambda file: read_settings([str(file)]).options == {"partition": "gpu"}),
    ],
    ids=["sweep", "reproduce", "check", "slurm"],
)
def test_byte_order_mark_is_ignored(content, read, tmp_path):
    file = tmp_path / "mine.toml"
    for start in (b"", b"\xef\xbb\xbf"):
        file.write_bytes(start + content.encode())
        assert read(file)
    file.write_bytes(b"\xff\xfe" + content.encode("utf-16-le"))
    with pytest.raises(UsageError, match=r"mine\.toml is not TOML"):
        read(file)
