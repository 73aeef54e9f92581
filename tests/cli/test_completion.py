"""Shell completion through the shells' protocols, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture
def complete(tmp_path):
    """Return the words that a shell is offered for a line; the last word is incomplete."""

    def call(line: str, shell: str = "bash") -> list[str]:
        words = line.split(" ")
        values = {"_ORTHOBENCH_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
        values |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        done = subprocess.run(
            [sys.executable, "-m", "orthobench"],
            cwd=tmp_path,
            env=os.environ | values,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return [word for word in done.stdout.splitlines() if word]

    return call


@pytest.mark.parametrize(
    ("line", "words"),
    [
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
    ],
)
def test_names_are_completed(complete, line, words):
    assert complete(line) == words


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
        "context = SimpleNamespace(args=['adding', 'scornn'], params={'db': 'none.db'})\n"
        "assert completion.settings(context, '') and completion.tasks('') and completion.runs(context, '') == []\n"
        "print(*({'torch', 'sqlalchemy', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
