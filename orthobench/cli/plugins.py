"""`orthobench plugins`: the tasks and models there are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from orthobench.cli.options import Json, PluginFiles


def command(
    plugin: PluginFiles = None,
    check: Annotated[bool, typer.Option("--check", help="Hold each against the plugins' contract.")] = False,
    json: Json = False,
) -> None:
    """List tasks and models.

    Those that cannot be used are listed with the reason.
    """
    from orthobench.cli import records
    from orthobench.plugins import Catalog, PluginError

    catalog = Catalog(plugin or ())
    listed: list[dict[str, Any]] = []
    for entry in catalog:
        record: dict[str, Any] = {"kind": entry.kind, "name": entry.name, "origin": entry.origin, "problem": None}
        try:
            cls = entry.load()
        except PluginError as error:
            record["problem"] = str(error)
        else:
            record |= {"title": cls.title, "version": cls.version, "settings": sorted(cls.Settings.model_fields)}
            if check:
                from orthobench.testing import problems

                record["problem"] = "; ".join(problems(entry.kind, cls)) or None
        listed.append(record)
    for entry, reason in catalog.broken:
        listed.append({"kind": entry.kind, "name": entry.name, "origin": entry.origin, "problem": reason})
    if json:
        records.print_json(listed)
    else:
        from rich.markup import escape
        from rich.table import Table

        table = Table("kind", "name", "origin", "what it is", box=None)
        for record in listed:
            fault = record["problem"]
            what = f"[red]cannot be used: {escape(fault)}[/red]" if fault else escape(str(record["title"]))
            table.add_row(record["kind"], record["name"], record["origin"], what)
        records.console().print(table)
    if check and any(record["problem"] for record in listed):
        raise typer.Exit(1)
