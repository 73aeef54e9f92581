"""A longer run that begins with the kept state of a shorter one has the numbers of an uninterrupted run."""

from __future__ import annotations

import pytest
import torch
from support.trained import KEEPING, rows, weights

import orthobench as ob
from orthobench.errors import UsageError


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("scornn", {"learning_rate_decay": "0.5", "shuffle": "true", "probes": "heat_map"}),
        ("lstm", {"optimizer": "adam", "evaluate_every": "3"}),
        pytest.param("rnn", {"optimizer": "sgd_momentum"}, marks=pytest.mark.slow),
        ("urnn", {}),
        pytest.param("full_urnn", {}, marks=pytest.mark.slow),
        ("gru", {"learning_rate": "0.3", "optimizer": "adagrad_tf1"}),
    ],
)
def test_numbers_equal_those_of_a_run_from_the_beginning(tmp_path, tiny, model, settings):
    settings = tiny | settings
    fresh_database, database = str(tmp_path / "fresh.db"), str(tmp_path / "r.db")
    fresh = ob.run("adding", model, db=fresh_database, settings=settings | {"epochs": "5"}, options=KEEPING)
    short = ob.run("adding", model, db=database, settings=settings | {"epochs": "3"}, options=KEEPING)
    before = rows(database, short.key)
    long = ob.run("adding", model, db=database, settings=settings | {"epochs": "5"}, options=KEEPING, extend=True)
    assert (long.key, long.status, long.iterations) == (fresh.key, "finished", fresh.iterations)
    assert long.continued_from == short.key
    assert fresh.continued_from is None
    assert rows(database, long.key) == rows(fresh_database, fresh.key)
    assert (long.best_value, long.best_iteration, long.final_value) == (
        fresh.best_value,
        fresh.best_iteration,
        fresh.final_value,
    )
    assert rows(database, short.key) == before
    for kind in ("best", "last", "state"):
        iteration, tensors = weights(database, long.key, kind)
        fresh_iteration, fresh_tensors = weights(fresh_database, fresh.key, kind)
        assert (iteration, tensors.keys()) == (fresh_iteration, fresh_tensors.keys())
        assert all(torch.equal(tensors[name], fresh_tensors[name]) for name in tensors)


def test_run_interrupted_inside_an_epoch_is_continued_inside_it(tmp_path, tiny):
    fresh = ob.run("adding", "scornn", db=str(tmp_path / "f.db"), settings=tiny, options=KEEPING)
    database = str(tmp_path / "r.db")
    ob.run("adding", "scornn", db=database, settings=tiny | {"max_iterations": "5"}, options=KEEPING)
    long = ob.run("adding", "scornn", db=database, settings=tiny, options=KEEPING, extend=True)
    assert long.continued_from
    assert rows(database, long.key) == rows(str(tmp_path / "f.db"), fresh.key)


def test_only_new_iterations_are_trained(tmp_path, tiny, orthobench):
    options = [f"{name}={value}" for name, value in tiny.items() if name != "epochs"]
    options = [word for option in options for word in ("-s", option)]
    short = orthobench("run", "adding", "rnn", *options, "--epochs", "2", "--keep-weights", "last")
    assert "starts at the beginning" in short.err
    long = orthobench("run", "adding", "rnn", *options, "--epochs", "4")
    assert "from epoch 2" in long.err
    assert "epoch 1.00" not in long.err
    assert "epoch 4.00" in long.err
    again = orthobench("run", "adding", "rnn", *options, "--epochs", "4")
    assert (again.code, again.out) == (0, long.out)


def test_longest_shorter_run_of_the_same_settings_is_continued(tmp_path, tiny):
    database = str(tmp_path / "r.db")

    def run(epochs, extend=True, **more):
        settings = tiny | {"epochs": str(epochs)} | more
        return ob.run("adding", "rnn", db=database, settings=settings, options=KEEPING, extend=extend)

    run(1)
    two = run(2, extend=False)
    run(3, learning_rate="0.5")
    run(6, extend=False)
    assert run(4).continued_from == two.key
    assert run(2, learning_rate="0.25").continued_from is None


def test_missing_or_changed_state_is_named(tmp_path, tiny):
    database = str(tmp_path / "r.db")
    short = ob.run("adding", "rnn", db=database, settings=tiny, options=KEEPING)
    file = tmp_path / "r.db.weights" / f"{short.key}.state.safetensors"
    content = file.read_bytes()
    for change, message in ((content[:-9], "cut|bytes"), (None, "are missing")):
        file.unlink() if change is None else file.write_bytes(change)
        with pytest.raises(UsageError, match=message):
            ob.run("adding", "rnn", db=database, settings=tiny | {"epochs": "5"}, options=KEEPING, extend=True)
    with ob.open_results(database) as results:
        assert [run.key for run in results.store.runs()] == [short.key]


@pytest.mark.parametrize("schedule", [{"schedule": "cosine"}, {"warmup": "0.2"}])
def test_schedule_that_depends_on_the_length_cannot_be_continued(tmp_path, tiny, schedule, orthobench):
    settings = {name: value for name, value in (tiny | schedule).items() if name != "epochs"}
    options = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    orthobench("run", "adding", "rnn", *options, "--epochs", "2", "--keep-weights", "last")
    long = orthobench("run", "adding", "rnn", *options, "--epochs", "5", "--keep-weights", "last")
    line = next(line for line in long.err.splitlines() if "starts at the beginning" in line)
    (name,) = schedule
    assert f"its learning rates depend on its length ({name}=" in line
    assert "epoch 1.00" in long.err


def test_warm_up_in_iterations_can_be_continued(tmp_path, tiny):
    settings = tiny | {"warmup": "3"}
    fresh = ob.run("adding", "rnn", db=str(tmp_path / "f.db"), settings=settings | {"epochs": "4"}, options=KEEPING)
    ob.run("adding", "rnn", db=str(tmp_path / "r.db"), settings=settings, options=KEEPING)
    longer = settings | {"epochs": "4"}
    long = ob.run("adding", "rnn", db=str(tmp_path / "r.db"), settings=longer, options=KEEPING, extend=True)
    assert long.continued_from
    assert rows(str(tmp_path / "r.db"), long.key) == rows(str(tmp_path / "f.db"), fresh.key)


def test_restarted_longer_run_continues_nothing(tmp_path, tiny):
    database = str(tmp_path / "r.db")
    ob.run("adding", "rnn", db=database, settings=tiny, options=KEEPING)
    longer = tiny | {"epochs": "5"}
    assert ob.run("adding", "rnn", db=database, settings=longer, options=KEEPING, extend=True).continued_from
    assert not ob.run("adding", "rnn", db=database, settings=longer, options=KEEPING, force=True).continued_from
