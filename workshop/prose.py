"""List the sentences of more than 35 words in documents, docstrings and the comments of C files."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_WORDS = 35
CODE = ("orthobench", "models", "tasks", "workshop", "tests")
DOCUMENTS = ("*.md", "docs/*.md", "workshop/benchmarks/*.md")
# Lists of arguments, equations, code and tables are not sentences.
NO_SENTENCE = re.compile(r"\s*([\w, ]+:|[*|-]|>>>)\s|    ")


SECTIONS = r"\n\s*(?:Args|Raises|Returns|Attributes|Yields):\n"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring."""
    for paragraph in re.split(rf"\n\s*\n|{SECTIONS}", text):
        plain = " ".join(line for line in paragraph.splitlines() if not NO_SENTENCE.match(line))
        yield from re.split(r"(?<=[.;:!?])\s+(?=[A-Z`\"])", plain)


def document(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a Markdown text with their lines; code, tables, headings and HTML are left out."""
    text = re.sub(r"(?ms)^```.*?^```$", lambda match: "\n" * match[0].count("\n"), text)
    line = 1
    for block in re.split(r"(\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) ))", text):
        if block.strip() and not re.match(r"    |\||#|!|<", block.lstrip("\n")):
            plain = re.sub(r"`[^`]*`", "code", " ".join(block.split()).replace("**", ""))
            plain = re.sub(r"\]\([^)]*\)", "]", plain)  # the targets of links and their titles are not read
            yield from ((line, sentence) for sentence in re.split(r"(?<=[.;:!?])\s+", plain))
        line += block.count("\n")


def python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a file's docstrings with the lines where their definitions begin."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for sentence in sentences(ast.get_docstring(node) or ""):
                yield getattr(node, "lineno", 1), sentence


def c(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of the comments of a C file with the lines where the comments begin."""
    for comment in re.finditer(r"(?s)/\*(.*?)\*/", text):
        lines = [re.sub(r"^ ?\* ?", "", line) for line in comment[1].strip().splitlines()]
        prose = "\n".join(line for line in lines if not line.startswith("    "))  # indented: equations
        for sentence in re.split(r"(?<=[.;!?])\s+|\n\n", prose):
            yield text.count("\n", 0, comment.start()) + 1, sentence


def long_sentences(root: Path) -> Iterator[str]:
    """Yield a line for each sentence that is too long: its file, its line, its length and its first words."""
    readers = {".md": document, ".py": python, ".c": c, ".h": c}
    paths = [path for pattern in DOCUMENTS for path in root.glob(pattern)]
    paths += [path for folder in CODE for suffix in (".py", ".c", ".h") for path in (root / folder).rglob(f"*{suffix}")]
    for path in sorted(set(paths)):
        for line, sentence in readers[path.suffix](path.read_text("utf-8")):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > MAX_WORDS:
                yield f"{path.relative_to(root)}:{line}: {len(words)} words: {' '.join(words[:8])} ..."


if __name__ == "__main__":
    problems = list(long_sentences(Path(__file__).parent.parent))
    print(*problems, sep="\n", end="\n" if problems else "")
    sys.exit(bool(problems))
