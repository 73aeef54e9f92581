"""A message names the arguments of the Python API, and the command line spells them as its flags."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import orthobench as ob
from orthobench.cli import GROUPS, load
from orthobench.cli.options import spelled

PACKAGE = Path(ob.__file__).parent
FLAG = re.compile(r"(?!^--[a-z]+=)(?<![\w-])--?[a-z][a-z-]*(?![\w-])")
"""A flag in a sentence; a text such as `--format=%F %T` is an argument of another program."""
COMMAND = re.compile(r"`[^`]* [^`]*`")
"""A command in a message, which is the same in both uses."""
ARGUMENT = re.compile(r"`([a-z][a-z_]*)(?:=[^`]*)?`")
OTHERS = {"capacity", "split", "reproduce", "finding", "lengths", "positions", "target", "sequence", "time", "y"}
"""Words in backquotes in the descriptions of settings and fields, and arguments of a trained model, of no command."""


def sentences(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file that have several words, with ... for inserted values.

    Docstrings are left out, and texts of several paragraphs: a document names commands as its readers write them.
    """
    tree = ast.parse(file.read_text("utf-8"))
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inner |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if node in inner or not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part.value if isinstance(part, ast.Constant) else "..." for part in parts]
        text = "".join(each for each in texts if isinstance(each, str))
        if all(isinstance(each, str) for each in texts) and " " in text and "\n\n" not in text:
            yield node.lineno, text


@functools.cache
def messages() -> list[tuple[str, str]]:
    """Return every sentence outside the command line, with its place."""
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if PACKAGE / "cli" not in file.parents]
    files += [file for name in ("models", "tasks") for file in sorted((PACKAGE.parent / name).glob("*.py"))]
    return [(f"{file.relative_to(PACKAGE.parent)}:{line}", text) for file in files for line, text in sentences(file)]


@functools.cache
def flags() -> set[str]:
    """Return the flags of all commands."""
    commands = [load(name) for names in GROUPS.values() for name in names]
    commands += [each for group in commands for each in getattr(group, "commands", {}).values()]
    return {flag for command in commands for parameter in command.params for flag in parameter.opts}


def named_flags(text: str) -> set[str]:
    """Return the flags that a message names outside of commands; a text may be a command as a whole."""
    return set() if text.startswith("orthobench ") else set(FLAG.findall(COMMAND.sub("", text))) & flags()


def test_no_message_below_the_command_line_names_a_flag():
    assert [(place, text) for place, text in messages() if named_flags(text)] == []


def test_every_argument_in_a_message_is_a_flag_of_some_command():
    arguments = [(place, each) for place, text in messages() for each in ARGUMENT.findall(text) if each not in OTHERS]
    assert len(arguments) > 60
    assert [(place, each) for place, each in arguments if spelled(f"`{each}`") not in flags()] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("raise UsageError('name another with --db')", True),
        ("raise UsageError(f'run `orthobench db upgrade --db {location}` first')", False),
        ("def f():\n    'Read `--slurm` or --db.'", False),
    ],
)
def test_check_finds_flags_in_sentences(tmp_path, text, found):
    (tmp_path / "module.py").write_text(text)
    assert any(named_flags(each) for _, each in sentences(tmp_path / "module.py")) == found


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("give `data_folder`", "give --data-dir"),
        ("`jobs=0`: leave `gpu_share` out", "-j 0: leave --gpu-share out"),
        ("add `force=True`, or `keep_weights='last'`", "add --force, or --keep-weights last"),
        ("`slurm='a b'`: `executor='ray://h:1'`", "--slurm 'a b': --executor ray://h:1"),
        ("`db='postgresql://user@host/name'`", "--db postgresql://user@host/name"),
        ("`checkpoint_every='a text that was cut", "`checkpoint_every='a text that was cut"),
        ("run `orthobench db repair` or `Model`", "run `orthobench db repair` or `Model`"),
        ("hidden_size=3: give a number", "hidden_size=3: give a number"),
    ],
)
def test_arguments_in_backquotes_become_flags(message, shown):
    assert spelled(message) == shown


CASES = {
    "another database": (
        lambda: ob.open_results("results.db"),
        ("ls",),
        "there is no database results.db: create it with `orthobench run adding scornn --preset quick`, or name "
        "another with {`db`|--db}",
    ),
    "a time": (
        lambda: ob.RunOptions(checkpoint_every=float("inf")),
        ("run", "adding", "rnn", "--checkpoint-every", "inf"),
        "{`checkpoint_every=inf`|--checkpoint-every inf}: should be a finite number",
    ),
    "threads": (
        lambda: ob.SweepOptions(threads=2),
        ("sweep", "adding", "--models", "rnn", "--threads", "2"),
        "{`threads`|--threads} is for {`executor='ray'`|--executor ray} and {`executor='slurm'`|--executor slurm}: "
        "here the runs share the cores, leave it out",
    ),
    "jobs": (
        lambda: ob.SweepOptions(jobs=0, executor="ray"),
        ("sweep", "adding", "--models", "rnn", "-j", "0", "--executor", "ray"),
        "{`jobs=0`|-j 0} is for runs in this process: leave it out with {`executor='ray'`|--executor ray}, or give a "
        "limit",
    ),
    "a graph": (
        lambda: ob.run("adding", "rnn", options=ob.RunOptions(device="cpu", cuda_graph="on")),
        ("run", "adding", "rnn", "--device", "cpu", "--cuda-graph", "on"),
        "{`cuda_graph='on'`|--cuda-graph on}: the runs are not on a CUDA device; use "
        "{`cuda_graph='auto'`|--cuda-graph auto}",
    ),
    "checkpoints": (
        lambda: ob.run("adding", "rnn", options=ob.RunOptions(checkpoints="here")),
        ("run", "adding", "rnn", "--checkpoints", "here"),
        "{`checkpoints`|--checkpoints} is for a database server: a file has its checkpoints next to it, so leave it "
        "out",
    ),
    "weights": (
        lambda: ob.run("adding", "rnn", options=ob.RunOptions(weights="file")),
        ("run", "adding", "rnn", "--weights-at", "file"),
        "weights cannot be kept in {folder}/file, which is a file: name a folder with {`weights`|--weights-at}",
    ),
    "the seed": (
        lambda: ob.run("adding", "rnn", settings={"seed": 3}),
        ("run", "adding", "rnn", "-s", "seed=3"),
        "the seed is not a setting: give {`seed=3`|--seed 3}, or {`seeds=3`|--seeds 3} for a sweep",
    ),
    "a grid": (
        lambda: ob.tune("adding", "rnn", {}),
        ("tune", "adding", "--models", "rnn"),
        "missing {`grid`|--grid}: say what to search, such as learning_rate=1e-4..1e-2:log, hidden_size=64..256 or "
        "key=v1,v2",
    ),
    "a table": (
        lambda: ob.report("results.db", table="1"),
        ("report", "--table", "1", "--format", "csv"),
        "{`table`|--table} and {`figure`|--figure} belong to a paper: add {`paper`|--paper}, for example "
        "{`paper='helfrich2018'`|--paper helfrich2018}",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_error_names_the_argument_in_python_and_the_flag_on_the_command_line(orthobench, tmp_path, case):
    call, words, line = CASES[case]
    (tmp_path / "file").touch()
    line = line.replace("{folder}", str(tmp_path))
    in_python, in_shell = (re.sub(r"\{([^|}]*)\|([^}]*)\}", rf"\{side}", line) for side in (1, 2))
    with pytest.raises(ob.UsageError) as caught:
        call()
    assert str(caught.value) == in_python
    done = orthobench(*words)
    assert (done.code, done.out, done.err) == (2, "", f"error: {in_shell}\n")
