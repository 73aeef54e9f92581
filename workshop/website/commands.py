"""The pages of the commands, generated from the declarations of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from orthobench.cli import GROUPS, app
from workshop.website.markdown import escape, fenced, page, table

EXTRA = re.compile(r"^(?P<help>.*?)\s*(?:\[(?P<extra>[^\[\]]*)\])?$", re.S)
"""The last column of a help text: the meaning, followed by default, range and "required" in brackets."""


def command_pages() -> dict[str, str]:
    """Return the index of the commands and a page for each of them, by path."""
    group: Any = typer.main.get_command(app)
    paths = {"commands/index.md": _index(group)}
    for name in (name for names in GROUPS.values() for name in names):
        paths[f"commands/{name}.md"] = page(f"# orthobench {name}", *_command(name, group.commands[name]))
    return paths


def _index(group: Any) -> str:
    parts = ["# Commands", "Every command explains its options with `--help`."]
    for title, names in GROUPS.items():
        rows = [(f"[`{name}`]({name}.md)", escape(group.commands[name].get_short_help_str(200))) for name in names]
        parts += [f"## {title}", table(["command", "purpose"], rows)]
    return page(*parts, "## Options of every command", _parameters(group, "orthobench"))


def _command(name: str, command: Any, level: int = 2) -> Iterator[str]:
    """Yield the parts of the page about a command; a group has a section for each of its commands."""
    context = typer.Context(command, info_name=f"orthobench {name}")
    yield _help(command.help or "")
    if hasattr(command, "commands"):
        for other, inner in command.commands.items():
            yield f"{'#' * level} orthobench {name} {other}"
            yield from _command(f"{name} {other}", inner, level + 1)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    spelled = re.sub(r"\{(\w+)\}|\[(?!OPTIONS)(\w+)\]", lambda match: match[0].upper(), usage)
    yield fenced(f"orthobench {name} {spelled}")
    yield _parameters(command, f"orthobench {name}")


def _help(text: str) -> str:
    """Convert a help text to Markdown, paragraph by paragraph."""
    return "\n\n".join(escape(paragraph) for paragraph in re.split(r"\n\s*\n", text.strip()))


def _parameters(command: Any, name: str) -> str:
    """Return a table of a command's arguments and options."""
    context = typer.Context(command, info_name=name)
    records = [record for param in command.params if (record := param.get_help_record(context)) is not None]
    rows = []
    for spelled, text in records:
        match = EXTRA.match(text)
        assert match is not None
        rows.append((f"`{spelled}`", escape(match["help"]), escape(match["extra"] or "")))
    return table(["argument or option", "meaning", "default and range"], rows) if rows else ""
