"""The seeds of a sweep, files of runs and searches, the port of the live page, and the headings of the help."""

from __future__ import annotations

import json
import socket

import pytest

from orthobench.errors import UsageError
from orthobench.options.arguments import LARGEST_SEED
from orthobench.options.seeds import more_seeds, parse_seeds


@pytest.mark.parametrize(
    ("text", "first", "seeds"),
    [
        ("3", None, [0, 1, 2]),
        ("3", 4, [4, 5, 6]),
        ("3-5", None, [3, 4, 5]),
        ("0,3-5", None, [0, 3, 4, 5]),
        ("7-7", None, [7]),
        ("2,2-3", None, [2, 3]),
    ],
)
def test_seeds_are_a_number_or_a_list(text, first, seeds):
    assert parse_seeds(text, first) == seeds


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0", None),
        ("10001", None),
        ("-3", None),
        ("5-3", None),
        ("1.5", None),
        ("a", None),
        ("", None),
        ("1,", None),
        ("3-5", 2),
        ("0-99999", None),
        (f"{LARGEST_SEED + 1},1", None),
        ("2", LARGEST_SEED),
    ],
)
def test_wrong_seeds_are_refused(text, first):
    with pytest.raises(UsageError, match="seed"):
        parse_seeds(text, first)


@pytest.mark.parametrize(("seeds", "more"), [([0], "4"), ([0, 1, 2, 3], "8"), ([3, 4, 5], "6-6"), ([1], "2-4")])
def test_advice_for_more_seeds_adds_to_these(seeds, more):
    assert more_seeds(seeds, 4) == more
    assert len({*parse_seeds(more), *seeds}) > len(seeds)


def seeds_of(done):
    assert done.code == 0, done.err
    return [run["seed"] for run in json.loads(done.out)]


def test_sweep_takes_a_range_and_a_first_seed(orthobench, tiny_options):
    words = ("sweep", "adding", "--models", "rnn", "--dry-run", "--json", "--no-profile", *tiny_options)
    assert seeds_of(orthobench(*words, "--seeds", "3-5")) == [3, 4, 5]
    assert seeds_of(orthobench(*words, "--seeds", "2", "--first-seed", "7")) == [7, 8]
    assert seeds_of(orthobench(*words, "--first-seed", "7")) == [7]
    done = orthobench(*words, "--seeds", "3-5", "--first-seed", "7")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "leave --first-seed out" in done.err


def test_sweep_file_takes_a_range_of_seeds(orthobench, tmp_path):
    (tmp_path / "s.toml").write_text('task = "adding"\nmodels = ["rnn"]\nseeds = "3-4"\npreset = "quick"\n')
    words = ("sweep", "--file", str(tmp_path / "s.toml"), "--dry-run", "--json", "--no-profile")
    assert seeds_of(orthobench(*words)) == [3, 4]
    assert seeds_of(orthobench(*words, "--seeds", "8-9")) == [8, 9]


def write(path, text, settings):
    lines = [f'{name} = "{value}"' for name, value in settings.items()]
    path.write_text("\n".join([text, "[settings]", *lines]))
    return str(path)


def test_run_file_trains_the_run_of_the_same_command(orthobench, tiny, tiny_options, tmp_path):
    file = write(tmp_path / "run.toml", 'task = "adding"\nmodel = "rnn"\nseed = 3', tiny)
    from_file = json.loads(orthobench("run", "--file", file, "--json").out)
    given = json.loads(orthobench("run", "adding", "rnn", "--seed", "3", *tiny_options, "--json").out)
    assert from_file["run"] == given["run"]
    assert json.loads(orthobench("run", "--file", file, "--seed", "4", "--json").out)["seed"] == 4
    for extra in (["adding"], ["-s", "epochs=1"], ["--preset", "quick"]):
        done = orthobench("run", *extra, "--file", file)
        assert (done.code, "--file names the runs already" in done.err) == (2, True)
    done = orthobench("run", "--file", write(tmp_path / "bad.toml", 'task = "adding"', {}))
    assert (done.code, "model is missing" in done.err) == (2, True)
    done = orthobench("run", "adding")
    assert (done.code, "missing arguments" in done.err) == (2, True)


def test_search_file_plans_the_search_of_the_same_command(orthobench, tiny, tmp_path):
    pytest.importorskip("optuna")
    text = 'task = "adding"\nmodels = ["rnn"]\ntrials = 2\nprune = false'
    file = write(tmp_path / "search.toml", text, tiny)
    with (tmp_path / "search.toml").open("a") as stream:
        stream.write('\n[grid]\nlearning_rate = "1e-4..1e-2:log"\n')
    from_file = orthobench("tune", "--file", file, "--dry-run", "--no-profile")
    options = [word for name, value in tiny.items() for word in ("-s", f"{name}={value}")]
    command = ["tune", "adding", "--models", "rnn", "--grid", "learning_rate=1e-4..1e-2:log", "--trials", "2"]
    given = orthobench(*command, "--no-prune", *options, "--dry-run", "--no-profile")
    assert (from_file.code, given.code) == (0, 0), from_file.err + given.err
    assert from_file.out == given.out
    assert "2 trials" in from_file.out
    done = orthobench("tune", "--file", file, "--grid", "learning_rate=1,2")
    assert (done.code, "--file names the runs already" in done.err) == (2, True)


def test_the_live_page_has_a_port_of_its_own(orthobench, tiny_options):
    words = ("sweep", "adding", "--models", "rnn", *tiny_options)
    done = orthobench(*words, "--port", "0")
    assert (done.code, "add --serve" in done.err) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = orthobench(*words, "--serve", "--port", port)
        assert (done.code, port in done.err) == (2, True)
    done = orthobench(*words, "--serve", "--port", port)
    assert done.code == 0
    assert f"127.0.0.1:{port}" in done.err


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("run", {"What to train": "--set", "How to train": "--device", "Where results go": "--db"}),
        ("sweep", {"What to train": "--first-seed", "Where results go": "--port", "Clusters and servers": "--slurm"}),
        ("tune", {"What to train": "--trials", "How to train": "--jobs", "Where results go": "--tag"}),
    ],
)
def test_help_lists_options_under_headings(command, options, orthobench):
    text = orthobench(command, "--help").out
    headings = ["Arguments", "What to train", "How to train", "Where results go", "Clusters and servers", "Help"]
    parts, heading = {}, ""
    for line in text.splitlines():
        heading = line[:-1] if line[:-1] in headings and line.endswith(":") else heading
        parts[heading] = parts.get(heading, "") + line + "\n"
    assert [name for name in parts if name] == headings
    for heading, option in options.items():
        assert option in parts[heading]
        assert all(option not in part for other, part in parts.items() if other not in ("", heading))
