"""An option that collects values keeps all of them, in every command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from orthobench.cli import app
from orthobench.sinks.targets import SINK_KINDS

ROOT: Any = get_command(app)


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and group, with the words that call it."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


COLLECTING = [
    pytest.param(words, command, option, id=" ".join([*words, max(option.opts, key=len)]))
    for words, command in commands(ROOT)
    for option in command.params
    if option.param_type_name == "option" and option.multiple
]


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
