"""The code speaks plain English: no vague names, no dialect, sentences of at most 25 words, imperative docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("orthobench", "models", "tasks")
DOCUMENTS = sorted(
    [*(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")), *ROOT.glob("docs/*.md")]
)
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted(path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
KERNELS = sorted(path for path in (ROOT / "orthobench").rglob("*.*") if path.suffix in {".c", ".h"})
VAGUE_NAMES = {
    "one", "ones", "found", "made", "kept", "told", "wanted", "given", "asked", "held", "place", "places", "begun",
    "telling", "hopeful", "doing", "mine", "ours", "theirs", "anew", "beside", "there",
}  # fmt: skip
DIALECT = re.compile(
    r"\b(goes by|go by|is to be had|to be had|what is there|does not do|do not do|told|so many|as many|"
    r"goes on from here|the one that|the ones that|whatever comes|carried out|carry out|anew|begun|wherever it is|"
    r"how far it is|what is known|what came of|what comes of|what becomes of)\b",
    re.I,
)
MAX_WORDS = 25
NO_SENTENCE = re.compile(r"\s*([\w, ]+:|\*|>>>|\||-)\s|    .* = ")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a file with their lines."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring's paragraphs; lists of arguments, equations and code are left out."""
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:Args|Raises|Returns|Attributes|Yields):\n", text):
        plain = " ".join(line for line in paragraph.splitlines() if not NO_SENTENCE.match(line))
        yield from re.split(r"(?<=[.;:])\s+(?=[A-Z`\"])", plain)


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the names that a file assigns: variables, parameters, attributes and functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, node.name


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=relative)
def test_names_say_what_they_hold(path):
    assert [(line, name) for line, name in names(path) if name.strip("_") in VAGUE_NAMES] == []


@pytest.mark.parametrize("path", KERNELS, ids=relative)
def test_lines_of_kernels_fit_120_columns(path):
    assert [number for number, line in enumerate(path.read_text("utf-8").splitlines(), 1) if len(line) > 120] == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_docstrings_and_comments_have_no_dialect(path):
    problems = [(line, match[0]) for line, text in texts(path) for match in DIALECT.finditer(text)]
    problems += [
        (number, match[0])
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (match := DIALECT.search(line.partition("#")[2]))
    ]
    assert problems == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_sentences_of_docstrings_are_short(path):
    long = [
        (line, len(words), " ".join(words[:6]))
        for line, text in texts(path)
        for sentence in sentences(text)
        if len(words := [word for word in sentence.split() if re.search(r"\w", word)]) > MAX_WORDS
    ]
    assert long == []


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs and list items of a document without its code, tables and headings."""
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf-8"))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )", text):
        if not re.match(r"    |\||#|!|<", block.lstrip("\n")):
            yield re.sub(r"`[^`]*`", "code", " ".join(block.split()).replace("**", ""))


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_documents_are_plain(path):
    problems = []
    for paragraph in paragraphs(path):
        problems += [match[0] for match in DIALECT.finditer(paragraph)]
        for sentence in re.split(r"(?<=[.;:!?])\s+", paragraph):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > MAX_WORDS:
                problems.append(" ".join(words[:8]))
    assert problems == []
