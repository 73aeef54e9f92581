"""What users of other command lines expect: a variable for the database, --quiet, --json, and short names."""

from __future__ import annotations

import json

import pytest

import orthobench as ob


def test_variable_names_the_database(orthobench, tiny, tiny_options, tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOBENCH_DB", "named.db")
    assert orthobench("run", "adding", "rnn", *tiny_options).code == 0
    assert ob.run("adding", "lstm", settings=tiny).status == "finished"
    assert {run["model"] for run in json.loads(orthobench("ls", "--json").out)} == {"rnn", "lstm"}
    with ob.open_results() as results:
        assert len(results.runs()) == 2
    assert not (tmp_path / "results.db").exists()
    assert "other.db" in orthobench("ls", "--db", "other.db").err
    monkeypatch.setenv("ORTHOBENCH_DB", "")
    assert "results.db" in orthobench("ls").err


def test_quiet_shows_the_result_alone(orthobench, tiny_options):
    quiet = orthobench("run", "adding", "rnn", *tiny_options, "-q")
    assert (quiet.err, quiet.out.count("\n")) == ("", 1)
    quiet = orthobench("sweep", "adding", "--models", "rnn,lstm", *tiny_options, "--quiet")
    assert quiet.err == ""
    assert {line.split()[0] for line in quiet.out.splitlines()} == {"model", "rnn", "lstm", "baseline"}
    assert "missing" in orthobench("sweep", "adding", "-m", "gru", *tiny_options, "-q", "--dry-run", "--no-profile").out


def test_quiet_still_tells_of_failures(orthobench, tiny_options, monkeypatch):
    def fail(*_):
        raise ValueError("out of luck")

    monkeypatch.setattr("orthobench.training.trainer.Trainer.step", fail)
    failed = orthobench("sweep", "adding", "-m", "rnn", *tiny_options, "-q")
    assert (failed.code, "out of luck" in failed.err) == (1, True)


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_run_and_sweep_print_their_records_as_json(quiet, orthobench, tiny_options):
    run = orthobench("run", "adding", "rnn", *tiny_options, "--json", *quiet)
    record = json.loads(run.out)
    assert record == json.loads(orthobench("show", record["run"], "--json").out)
    assert ("epoch" in run.err) == (not quiet)
    words = ["adding", "--models", "rnn,lstm", *tiny_options[:-2], "--grid", "n=4,8", "--json", *quiet]
    planned = json.loads(orthobench("sweep", *words, "--dry-run", "--no-profile").out)
    assert [(run["model"], run["settings"]["hidden_size"], run["state"]) for run in planned] == [
        (model, n, "finished" if (model, n) == ("rnn", 8) else "missing") for model in ("rnn", "lstm") for n in (4, 8)
    ]
    swept = json.loads(orthobench("sweep", *words).out)
    assert sorted(map(str, swept)) == sorted(map(str, json.loads(orthobench("ls", "--json").out)))


def test_short_names_are_those_of_the_long_ones(orthobench, tiny_options):
    assert orthobench("sweep", "adding", "-m", "rnn", "-m", "lstm", *tiny_options).code == 0
    listed = json.loads(orthobench("ls", "-t", "adding", "-m", "lstm", "--json").out)
    assert [run["model"] for run in listed] == ["lstm"]
