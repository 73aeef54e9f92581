"""The conditions that select runs."""

from __future__ import annotations

import pytest
from support.pages import add_run

from orthobench.analysis.selection import find_runs, select_runs
from orthobench.errors import NoMatchError, UsageError
from orthobench.settings.filters import conditions_text, narrow, parse_conditions, read_conditions
from orthobench.store import Run, open_store


def run(
    key: str, model: str, seed: int, status: str = "finished", tags: tuple[str, ...] = (), **settings: object
) -> Run:
    from orthobench.store.tables import Tag

    spec = {"task_settings": {"sequence_length": 10}, "model_settings": settings, "training": {"probes": ["heat_map"]}}
    stored_run = Run(key=key, task="adding", model=model, seed=seed, status=status, device="cpu", backend="reference")
    stored_run.variant, stored_run.condition = "v" + key, "c"
    stored_run.spec = {**spec, "task_version": "1", "model_version": "1"}
    stored_run.tag_rows = [Tag(name=name) for name in tags]
    return stored_run


RUNS = [
    run("1a", "scornn", 0, tags=("night",), hidden_size=170, learning_rate=1e-3, negative_ones=17),
    run("1b", "scornn", 1, status="failed", hidden_size=170, learning_rate=7e-4, negative_ones=17),
    run("2a", "lstm", 0, tags=("night", "day"), hidden_size=68, learning_rate=1e-3),
    run("2b", "gru", 10, status="running", hidden_size=68, learning_rate=1e-3),
]


@pytest.mark.parametrize(
    ("texts", "keys"),
    [
        ([], ["1a", "1b", "2a", "2b"]),
        (["model=scornn"], ["1a", "1b"]),
        (["model=scornn", "seed=1"], ["1b"]),
        (["model=scornn,seed=1"], ["1b"]),
        (["model=scornn,lstm"], ["1a", "1b", "2a"]),
        (["model=scornn,lstm,seed=0"], ["1a", "2a"]),
        (["n=170"], ["1a", "1b"]),
        (["rho=17"], ["1a", "1b"]),
        (["learning_rate=0.0007"], ["1b"]),
        (["learning_rate=1e-03", "n=68"], ["2a", "2b"]),
        (["tag=day"], ["2a"]),
        (["tag=night"], ["1a", "2a"]),
        (["key=1"], ["1a", "1b"]),
        (["key=2a,1b"], ["1b", "2a"]),
        (["status=failed"], ["1b"]),
        (["probes=heat_map", "device=cpu", "sequence_length=10", "seed=10"], ["2b"]),
    ],
)
def test_selected_runs_meet_all_conditions(texts, keys):
    conditions = parse_conditions(texts)
    assert [selected_run.key for selected_run in select_runs(RUNS, conditions)] == keys
    assert parse_conditions([conditions_text(conditions)] if conditions else []) == conditions


FILES = [
    run("3a", "rnn", 0, hidden_size=4, gate=True, text="/home/me/my,book.txt", rate=1.0, names=[]),
    run("3b", "rnn", 1, hidden_size=8, gate=False, text="/home/ME/my,book.txt", rate=0.5, names=["a", "b"]),
    run("3c", "rnn", 2, hidden_size=16, gate=None, text="/home/me/a, b,c=d.txt", rate=0.5, names=["a"]),
]


@pytest.mark.parametrize(
    ("texts", "keys"),
    [
        (["text=/home/me/my,book.txt"], ["3a"]),
        (["text=/home/me/my,book.txt,seed=0,1"], ["3a"]),
        (["text=/home/me/other,/home/me/my,book.txt"], ["3a"]),
        (["text=my,book.txt", "seed=0"], ["3a"]),
        (["text=~/my,book.txt"], ["3a"]),
        (["text=../me/./my,book.txt"], ["3a"]),
        (["text=/home/me/a, b,c=d.txt"], []),
        (["hidden_size=4.0"], ["3a"]),
        (["hidden_size=1_6, 8"], ["3b", "3c"]),
        (["gate=yes"], ["3a"]),
        (["gate=False"], ["3b"]),
        (["gate=NULL"], ["3c"]),
        (["rate=1"], ["3a"]),
        (["rate=5e-1"], ["3b", "3c"]),
        (["names=b"], ["3b"]),
        (["names=none"], ["3a"]),
        (["model=RNN"], []),
    ],
)
def test_condition_accepts_every_notation_of_a_setting(texts, keys, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr("os.getcwd", lambda: "/home/me")
    try:
        selected = select_runs(FILES, parse_conditions(texts))
    except UsageError:
        selected = []
    assert [selected_run.key for selected_run in selected] == keys


@pytest.mark.parametrize("word", ["cell.py:Cell", "./cells/cell.py:Cell", "/home/me/cell.py:Cell"])
def test_layer_of_a_file_is_named_as_run_takes_it(word):
    layers = [run("3a", "cell.py:Cell", 0), run("3b", "cell.py:Other", 0), run("3c", "other.py:Cell", 0)]
    assert [each.key for each in select_runs([*RUNS, *layers], parse_conditions([f"model={word}"]))] == ["3a"]


def test_status_is_a_condition():
    selected = select_runs(RUNS, parse_conditions(["status=interrupted"]), lambda run: "interrupted")
    assert len(selected) == 4


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["model"], "'model' is not a condition: write KEY=VALUE"),
        (["model="], "'model=' is not a condition"),
        (["=lstm"], "'=lstm' is not a condition"),
        (["model=lstm,"], "is not a condition"),
        (["model=lstm", "model=gru"], "model is given twice (lstm and gru): write alternatives as model=lstm,gru"),
        (["n=1,hidden_size=2"], "hidden_size is given twice (1 and 2): write alternatives as hidden_size=1,2"),
        (["modle=lstm"], "unknown column or setting 'modle': did you mean model"),
        (["hidden_sise=3"], "unknown column or setting 'hidden_sise': did you mean hidden_size?"),
        (["model=lsmt"], "unknown model 'lsmt': did you mean lstm"),
        (["task=addin"], "unknown task 'addin': did you mean adding?"),
        (["status=finish"], "unknown status 'finish': did you mean finished?"),
    ],
)
def test_invalid_condition_names_the_fix(texts, message):
    with pytest.raises(UsageError) as raised:
        select_runs(RUNS, parse_conditions(texts))
    assert message in str(raised.value)
    assert not isinstance(raised.value, NoMatchError)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["seed=3"], "no run has seed=3; runs have seed 0, 1, 10"),
        (["model=gru,lstm", "n=170"], "no run has hidden_size=170; runs with model=gru,lstm have hidden_size 68"),
        (["model=irnn"], "no run has model=irnn; runs have model gru, lstm, scornn"),
        (["tag=nights"], "no run has tag=nights; runs have tag day, night, none"),
    ],
)
def test_no_match_lists_the_existing_values(texts, message):
    with pytest.raises(NoMatchError) as raised:
        select_runs(RUNS, parse_conditions(texts))
    assert str(raised.value) == message


def test_long_list_is_shortened_and_begins_with_the_nearest_value():
    with pytest.raises(NoMatchError) as raised:
        narrow(range(100), {"name": ("5050505",)}, lambda number: {"name": f"{number:02}" * 4})
    assert "runs have name 50505050, " in str(raised.value)
    assert str(raised.value).endswith(" and 88 more")


def test_empty_database_accepts_any_condition():
    assert select_runs([], {"model": ("lstm",)}) == []


def test_only_runs_of_the_named_model_are_read_unless_there_is_none(tmp_path):
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        for model in ("lstm", "rnn"):
            add_run(store, model)
        read: list[list[str]] = []

        def stored(**filters: str) -> list[Run]:
            runs = store.runs(**filters)
            read.append([run.model for run in runs])
            return runs

        def found(*conditions: str) -> list[str]:
            read.clear()
            return [run.model for run in find_runs(stored, read_conditions(conditions), lambda run: run.status)]

        assert (found("model=rnn"), read) == (["rnn"], [["rnn"]])
        assert (found("model=rnn,lstm"), read) == (["lstm", "rnn"], [["lstm", "rnn"]])
        with pytest.raises(UsageError, match="lstm, rnn"):  # the message lists the models of all runs
            found("model=gru")
        assert read == [[], ["lstm", "rnn"]]
