"""Shell completion through the shells' protocols, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def values_of(line: str, shell: str = "bash") -> dict[str, str]:
    """Return what a shell sets when it asks how to complete the last word of a line."""
    values = {"_ORTHOBENCH_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    words = line.split(" ")
    return values | {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}


@pytest.fixture
def complete(tmp_path):
    """Return the words that a shell is offered for a line; the last word is incomplete."""

    def call(line: str, shell: str = "bash") -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "orthobench"],
            cwd=tmp_path,
            env=os.environ | values_of(line, shell),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return [word for word in done.stdout.splitlines() if word]

    return call


ANSWERS = """
import contextlib, io, json, os, sys
from orthobench.__main__ import main

sys.argv = ["orthobench"]
answers = {}
for line, values in json.load(sys.stdin).items():
    os.environ.update(values)
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main()
    answers[line] = [word for word in printed.getvalue().splitlines() if word]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, list[str]]:
    """The words for every line of `LINES`, from one process, because a process for each takes most of the time."""
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS],
        cwd=tmp_path_factory.mktemp("empty"),
        input=json.dumps({line: values_of(line) for line, _ in LINES}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


LINES = [
    ("orthobench run add", ["adding"]),
    ("orthobench run adding sc", ["scornn", "scurnn"]),
    ("orthobench sweep adding --models scornn,ls", ["scornn,lstm"]),
    ("orthobench sweep adding --models lstm,lst", []),
    ("orthobench run adding scornn -s neg", ["negative_ones="]),
    ("orthobench sweep adding --models lstm,scornn -s forget", ["forget_bias="]),
    (
        "orthobench run mnist rnn -s dataset=",
        ["dataset=mnist", "dataset=fashion", "dataset=kmnist", "dataset=emnist"],
    ),
    ("orthobench run adding rnn -s gate", []),
    ("orthobench reproduce helfrich", ["helfrich2017", "helfrich2018", "helfrich2020"]),
    ("orthobench ls --status fi", ["finished"]),
    ("orthobench ls --model lst", ["lstm"]),
    ("orthobench cite timi", ["timit"]),
    ("orthobench run adding torch.nn:RN", ["torch.nn:RNN", "torch.nn:RNNCell"]),
    ("orthobench run adding torch.nn : LSTMC", ["LSTMCell"]),  # as bash splits it
    ("orthobench sweep adding --models scornn,torch.nn : GRUC", ["GRUCell"]),
    ("orthobench run adding nowhere.cells:", []),
]


@pytest.mark.parametrize(("line", "words"), LINES)
def test_names_are_completed(answers, line, words):
    assert answers[line] == words


def test_line_is_completed_in_a_process_of_its_own(complete):
    assert complete("orthobench run adding sc") == ["scornn", "scurnn"]


def test_each_shell_gets_its_format(complete):
    line = "orthobench run adding scornn -s neg"
    (fish,) = complete(line, "fish")
    assert fish.startswith("negative_ones=\trho, ")
    zsh = "\n".join(complete(line, "zsh"))
    assert zsh.startswith('_arguments \'*: :(("negative_ones=":"rho, ')
    assert complete("orthobench run add", "zsh") == ["_arguments '*: :((\"adding\"))'"]


def test_runs_are_completed_from_the_named_database(complete, orthobench, tiny_options, tmp_path):
    for seed in ("0", "1"):
        assert orthobench("run", "adding", "rnn", *tiny_options, "--seed", seed, "--db", "mine.db").code == 0
    keys = complete("orthobench show --db mine.db ")
    assert len(keys) == 2
    (described,) = complete(f"orthobench show --db mine.db {keys[0][:6]}", "fish")
    assert described == f"{keys[0]}\tadding rnn seed 1 finished"
    assert complete("orthobench show ") == []
    assert complete("orthobench delete --db postgresql://nowhere/x ") == []
    assert sorted(path.name for path in tmp_path.glob("results.db*")) == []


def test_completion_loads_neither_torch_nor_sqlalchemy():
    code = (
        "import sys\nfrom types import SimpleNamespace\nfrom orthobench.cli import completion\n"
        "from orthobench.system.location import Location\n"
        "context = SimpleNamespace(args=['adding', 'scornn'], params={'db': Location('none.db')})\n"
        "assert completion.settings(context, '') and completion.tasks('') and completion.runs(context, '') == []\n"
        "print(*({'torch', 'sqlalchemy', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
