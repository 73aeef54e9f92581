"""The plan of a sweep, as the command line prints it."""

import re

import orthobench.spec
from orthobench.cli.session_display import print_plan
from orthobench.planning.sweep_plan import plan_sweep
from orthobench.planning.sweep_runs import PlannedRun
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve


def test_settings_shared_by_all_runs_of_a_task_are_printed_once(orthobench):
    several = ("--grid", "(n,batch_size,learning_rate)=(8,4,0.1),(9,4,0.1)", "--dry-run", "--no-profile")
    first, heading, *rows = orthobench("sweep", "adding", "--models", "rnn", *several).out.splitlines()
    assert first == "every run: batch_size=4 learning_rate=0.1"
    assert "batch_size" not in "\n".join([heading, *rows])
    assert [re.search(r"rnn +(n=\d) ", row)[1] for row in rows[:2]] == ["n=8", "n=9"]


def test_settings_of_a_command_are_shown_above_its_runs(orthobench, tmp_path):
    given = ("-s", "sequence_length=20", "-s", "n=4")
    shown = orthobench("sweep", "adding", "--models", "rnn", *given, "--grid", "learning_rate=0.1,0.01", "--dry-run")
    assert shown.out.startswith("every run: sequence_length=20 n=4\n"), shown.err
    (tmp_path / "sweep.toml").write_text(
        'task = "adding"\nmodels = ["scornn"]\n[settings]\nsequence_length = 20\n[grid]\nrho = [0.1, 0.5]\nn = [4]\n'
    )
    shown = orthobench("sweep", "--file", "sweep.toml", "--dry-run")
    assert shown.out.startswith("every run: sequence_length=20 n=4\n"), shown.err


def test_single_run_shows_its_settings_in_its_row(orthobench):
    shown = orthobench("sweep", "adding", "--models", "rnn", "--grid", "n=8", "--dry-run", "--no-profile").out
    assert "every run" not in shown
    assert "n=8" in shown


def test_plan_of_many_runs_computes_each_key_once(monkeypatch, capsys):
    config = resolve(Catalog(), "adding", "rnn", {"hidden_size": 8})
    runs = [PlannedRun(config.with_seed(seed), {}, None, False) for seed in range(50)]
    digests = []
    digest = orthobench.spec.resolve.run_names
    monkeypatch.setattr(orthobench.spec.resolve, "run_names", lambda spec: digests.append(spec) or digest(spec))
    print_plan(plan_sweep(runs, None, None, 1))
    assert "50 missing" in capsys.readouterr().out
    assert len(digests) == 50
