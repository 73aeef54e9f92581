"""An option that is given twice collects its values or is refused, in every command: no value is dropped unseen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from orthobench.cli import app
from orthobench.errors import UsageError
from orthobench.sinks.targets import SINK_KINDS

ROOT: Any = get_command(app)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and group, with the words that call it."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


def collects(case: Any) -> bool:
    """Whether the option of a case may be given several times."""
    return case.values[2].multiple


OPTIONS = [
    pytest.param(words, command, option, id=" ".join([*words, max(option.opts, key=len)]))
    for words, command in commands(ROOT)
    for option in command.params
    if option.param_type_name == "option"
]
SINGLE = [case for case in OPTIONS if not collects(case)]
COLLECTING = [case for case in OPTIONS if collects(case)]


def test_search_for_options_reaches_every_command():
    assert len(list(commands(ROOT))) == 40
    assert {"--models", "--seed", "--format", "--version", "--prune"} <= {
        name for case in OPTIONS for name in case.values[2].opts
    }


def spelled(option: Any, name: str, number: int) -> list[str]:
    """Return an option with a value, which is refused before it is read."""
    return [name] if option.is_flag else [name, str(number)]


@pytest.mark.parametrize(("words", "command", "option"), SINGLE)
def test_single_value_option_given_twice_is_refused(words, command, option, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    name = "/".join(max(names, key=len) for names in (option.opts, option.secondary_opts) if names)
    for second in (*option.opts, *option.secondary_opts):
        arguments = [*words, *spelled(option, option.opts[0], 0), *spelled(option, second, 1)]
        with pytest.raises(UsageError) as raised:
            ROOT.main(arguments, prog_name="orthobench", standalone_mode=False)
        assert str(raised.value) == f"{name} is given twice: give it once"
    assert list(tmp_path.iterdir()) == []


def test_refusal_is_one_line(orthobench, tmp_path):
    outcome = orthobench("run", "adding", "rnn", "--seed", "1", "--seed=2")
    assert (outcome.code, outcome.out, outcome.err) == (2, "", "error: --seed is given twice: give it once\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "command", "option"), COLLECTING)
def test_repeatable_option_keeps_all_values(words, command, option):
    values: dict[str, list[str]]
    context = command.make_context(words[-1], [], resilient_parsing=True)
    values, *_ = command.make_parser(context).parse_args(args=[option.opts[0], "a", option.opts[-1], "b"])
    assert values[option.name] == ["a", "b"]


def test_repeated_models_add_up(orthobench, tiny_options):
    planned = orthobench(
        "sweep", "adding", "--models", "rnn", "--models", "lstm,gru", *tiny_options, "--dry-run", "--no-profile"
    )
    planned = planned.out
    assert {model for model in ("rnn", "lstm", "gru", "irnn") if f" {model} " in planned} == {"rnn", "lstm", "gru"}
    assert orthobench("sweep", "adding", "--models", "rnn", "--models", "").code == 2


def test_repeated_filters_add_up(orthobench, tiny_options):
    for model in ("rnn", "lstm", "gru"):
        assert orthobench("run", "adding", model, *tiny_options).code == 0

    def listed(*arguments: str) -> list[str]:
        return [run["model"] for run in json.loads(orthobench("ls", "--json", *arguments).out)]

    assert listed("--model", "rnn", "--model", "gru") == ["rnn", "gru"]
    assert listed("--task", "adding", "--task", "copying", "--model", "lstm") == ["lstm"]
    assert "2 runs would be deleted" in orthobench("delete", "--model", "rnn", "--model", "lstm", "--dry-run").out
    assert orthobench("ls", "--model", "").code == 2
    assert orthobench("ls", "--where", "model=rnn", "--where", "model=lstm").code == 2


def test_export_goes_to_every_destination(orthobench, tiny_options, monkeypatch):
    sent = []
    monkeypatch.setattr("orthobench.sinks.targets.find_spec", lambda name: object())
    monkeypatch.setattr("orthobench.api.databases.send", lambda store, runs, target, _: sent.append(target.kind) or "")
    assert orthobench("run", "adding", "rnn", *tiny_options).code == 0
    kinds = sorted(SINK_KINDS)
    assert orthobench("db", "export", *(word for kind in kinds for word in ("--to", f"{kind}:there"))).code == 0
    assert sent == kinds
