"""The commands that train take their options from the records: an option of a run is declared once."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import pytest
from typer.main import get_command

from orthobench.cli import app
from orthobench.cli.options import with_options
from orthobench.errors import UsageError
from orthobench.options.run_options import OPTIONS, RunOptions, SweepOptions

ROOT: Any = get_command(app)
RECORDS = {"run": RunOptions} | dict.fromkeys(("sweep", "tune", "reproduce", "study"), SweepOptions)


def options(command: str) -> list[Any]:
    return [each for each in ROOT.commands[command].params if each.param_type_name == "option"]


@pytest.mark.parametrize("name", [each.name for each in fields(SweepOptions)])
def test_every_option_has_a_help_text(name):
    text = OPTIONS[name][1].help
    assert text[0].isupper() or text.startswith("stop:")
    assert text.endswith(".")


@pytest.mark.parametrize("command", RECORDS)
def test_training_command_has_every_option_of_its_record(command):
    shown = {each.name: each for each in options(command)}
    for name in (each.name for each in fields(RECORDS[command])):
        assert shown[name].help == OPTIONS[name][1].help
        if not shown[name].multiple:
            assert shown[name].default == getattr(RECORDS[command], name)


@pytest.mark.parametrize("command", RECORDS)
def test_no_command_has_a_flag_twice(command):
    counts = Counter(word for each in options(command) for word in (*each.opts, *each.secondary_opts))
    assert set(counts.values()) == {1}


def test_command_line_texts_become_the_values_of_the_record():
    received = []

    @with_options(SweepOptions)
    def command(name: str, *, options: SweepOptions) -> None:
        received.append((name, options))

    texts = dict.fromkeys(OPTIONS) | {"jobs": 3, "tags": ["a ", "b", "a"], "budget": "1h30m"}
    command(name="x", **texts)
    assert received == [("x", SweepOptions(jobs=3, tags=("a", "b"), budget=5400.0))]
    for name, text, line in [("budget", "soon", "^--budget 'soon' is not a time"), ("tags", ["a,b"], "^--tag 'a,b': ")]:
        with pytest.raises(UsageError, match=line):
            command(name="x", **texts | {name: text})
