"""Measure how the code reads: `python -m workshop.house [CHECKOUT ...]` prints a table with a column for each checkout.

Without names, these are the last release and this checkout.

The numbers are for a look at the direction, and no test compares them: a number that has to be met changes the code for
the worse. With `--run`, a small run is trained in each checkout to count what it calls.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median, quantiles

from workshop.rooms import LINKED, ROOT, room_of
from workshop.traced_run import PROGRAM

PRODUCT = ("orthobench", *LINKED)
PACKAGE = "orthobench"
RUN = ("run", "adding", "scornn", "--preset", "quick", "--device", "cpu", "--db", "house.db")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def measure(root: Path, train: bool) -> dict[str, str]:
    """Return the measurements of a checkout by their names."""
    files = [path for name in PRODUCT for path in (root / name).rglob("*.py")]
    texts = [path.read_text("utf-8") for path in files]
    trees = [ast.parse(text) for text in texts]
    lines = sum(text.count("\n") for text in texts)
    nodes = [node for tree in trees for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, Function)]
    described = [bool(ast.get_docstring(node)) for tree in trees for node in _public(tree)]
    own, behind, because = (sum(counts) for counts in zip(*map(_comments, texts), strict=True))
    inside = {path: sum(1 for _ in _imports_inside(tree)) for path, tree in zip(files, trees, strict=True)}
    cli = sum(count for path, count in inside.items() if path.is_relative_to(root / PACKAGE / "cli"))
    arrows = _arrows(root, files, trees)
    tests = sum(path.read_text("utf-8").count("\n") for path in (root / "tests").rglob("*.py"))
    rows = {
        "Python files": f"{len(files):,}",
        "lines": f"{lines:,}",
        "file: median/p90/longest": _spread([text.count("\n") for text in texts]),
        "function: median/p90/longest": _spread([_length(node) for node in functions]),
        "classes per file": f"{sum(isinstance(node, ast.ClassDef) for node in nodes) / len(files):.1f}",
        "comments per 100 lines": f"{100 * own / lines:.2f} (+{100 * behind / lines:.2f} behind code)",
        'comments with "because"': str(because),
        "docstring lines per 100": f"{100 * sum(map(_docstring_lines, nodes)) / lines:.0f}",
        "public functions with docstring": f"{100 * sum(described) / len(described):.0f} %",
        "own imports inside functions: cli, elsewhere": f"{cli}, {sum(inside.values()) - cli}",
        "rooms": str(len(arrows)),
        "arrows": str(sum(map(len, arrows.values()))),
        "lines of tests per line": f"{tests / lines:.2f}",
    }
    rows |= _c(root)
    rows |= {f"lines of {room}": f"{count:,}" for room, count in sorted(_by_room(root, files, texts).items())}
    if train:
        rows |= _calls(root)
    return rows


def _spread(lengths: Sequence[int]) -> str:
    return f"{median(lengths):.0f}/{quantiles(lengths, n=10)[-1]:.0f}/{max(lengths)}"


def _length(node: ast.AST) -> int:
    return (getattr(node, "end_lineno", 0) or 0) - getattr(node, "lineno", 0) + 1


def _public(tree: ast.Module) -> Iterator[Function]:
    """Yield the public functions of a module, and the public methods of its public classes."""
    for node in tree.body:
        body = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [node]
        yield from (each for each in body if isinstance(each, Function) and not each.name.startswith("_"))


def _comments(text: str) -> tuple[int, int, int]:
    """Count the comment lines of their own, those behind code, and those comments that give a reason."""
    own, behind, blocks, last = 0, 0, list[str](), -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(noqa|type:|pragma)", token.string):
            continue
        alone = token.line.strip().startswith("#")
        own, behind = own + alone, behind + (not alone)
        if alone and token.start[0] == last + 1 and blocks:
            blocks[-1] += token.string
        else:
            blocks.append(token.string)
        last = token.start[0] if alone else -1
    return own, behind, sum("because" in block.lower() for block in blocks)


def _docstring_lines(node: ast.AST) -> int:
    if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or not node.body:
        return 0
    first = node.body[0]
    held = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return _length(first) if held else 0


def _imports_inside(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the imports of the package's own modules inside functions."""
    found: dict[int, ast.stmt] = {}
    for function in ast.walk(tree):
        if isinstance(function, Function):
            found |= {id(node): node for node in ast.walk(function) if _own(node) and isinstance(node, ast.stmt)}
    yield from found.values()


def _own(node: ast.AST) -> list[str]:
    """Return the modules of the package that an import names."""
    if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
        return [f"{PACKAGE}.{alias.name}" for alias in node.names]
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return [name for name in names if name.partition(".")[0] == PACKAGE]


def _arrows(root: Path, files: Sequence[Path], trees: Sequence[ast.Module]) -> dict[str, set[str]]:
    """Return the rooms of a checkout, each with the rooms that it imports."""
    rooms: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {}
    for path, tree in zip(files, trees, strict=True):
        room = room_of(path.relative_to(root).as_posix())
        assert room is not None
        rooms.setdefault(room, set())
        modules = {name.partition(".")[2].partition(".")[0] for node in ast.walk(tree) for name in _own(node)}
        named.setdefault(room, set()).update(modules)
    for room, modules in named.items():
        rooms[room] = {name if name in rooms else PACKAGE for name in modules} - {room}
    return rooms


def _by_room(root: Path, files: Sequence[Path], texts: Sequence[str]) -> Counter[str]:
    counts = Counter[str]()
    for path, text in zip(files, texts, strict=True):
        room = room_of(path.relative_to(root).as_posix())
        assert room is not None
        counts[room] += text.count("\n")
    return counts


def _c(root: Path) -> dict[str, str]:
    """Return the measurements of the C files."""
    texts = [path.read_text("utf-8") for suffix in ("c", "h") for path in (root / PACKAGE).rglob(f"*.{suffix}")]
    lines = sum(text.count("\n") for text in texts)
    # A function begins at the margin, and ends with the first brace at the margin.
    functions = [
        match[0].count("\n") + 1 for text in texts for match in re.finditer(r"(?ms)^\w[^;{}#]*\)\s*\{.*?^\}", text)
    ]
    comments = [match[0] for text in texts for match in re.finditer(r"(?s)/\*.*?\*/|//[^\n]*", text)]
    return {
        "C files": str(len(texts)),
        "C lines": f"{lines:,}",
        "C file: median/p90/longest": _spread([text.count("\n") for text in texts]),
        "C function: median/p90/longest": _spread(functions),
        "C comments per 100 lines": f"{100 * sum(comment.count(chr(10)) + 1 for comment in comments) / lines:.1f}",
        'C comments with "because"': str(sum("because" in comment for comment in comments)),
    }


def _calls(root: Path) -> dict[str, str]:
    """Train a small run with the code of a checkout, in a new folder and cache, and count what it calls."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(root), "ORTHOBENCH_CACHE": folder}
        command = [sys.executable, "-c", PROGRAM, str(root / PACKAGE), *RUN]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    # Functions have names; a lambda or a comprehension is part of the one around it.
    called = [
        (file, name)
        for file, name in json.loads(done.stdout.splitlines()[-1])["called"]
        if not name.rpartition(".")[2].startswith("<")
    ]
    files = {file for file, _ in called}
    return {"a first run calls: functions, files": f"{len(called)}, {len(files)}"}


@contextmanager
def _last_release() -> Iterator[list[Path]]:
    """Yield a folder with the files of the last release, named after it; none if the history does not reach it."""
    found = re.search(r"^## (\d\S*) \(.*\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    heading, release = (found[0], found[1]) if found else ("", "")
    # Not `git describe`, because copies of the repository often have no tags.
    words = ["git", "log", "-1", "--format=%H", f"-S{heading}", "--", "CHANGELOG.md"]
    commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    if not commit:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, release)
        path.mkdir()
        words = ["git", "archive", commit, *PRODUCT, "tests"]
        packed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], input=packed.stdout, cwd=path, check=True)
        yield [path]


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="CHECKOUT")
    parser.add_argument("--run", action="store_true", help="train a small run in each checkout")
    given = parser.parse_args()
    with nullcontext(given.checkouts) if given.checkouts else _last_release() as found:
        checkouts = [path.resolve() for path in (found if given.checkouts else [*found, ROOT])]
        columns = [measure(path, given.run) for path in checkouts]
    print("| | " + " | ".join(path.name for path in checkouts) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name in dict.fromkeys(name for column in columns for name in column):  # rooms come and go
        print(f"| {name} | " + " | ".join(column.get(name, "") for column in columns) + " |")


if __name__ == "__main__":
    main()
