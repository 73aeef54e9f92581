"""`orthobench plugins`: the tasks, models and probes there are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from orthobench.cli.options import Json, PluginFiles


def command(
    plugin: PluginFiles = None,
    check: Annotated[bool, typer.Option("--check", help="Hold each against the plugins' contract.")] = False,
    params: Annotated[
        bool, typer.Option("--params", help="The models' parameter counts beside the papers' instead.")
    ] = False,
    json: Json = False,
) -> None:
    """List tasks, models and probes.

    Those that cannot be used are listed with the reason.
    """
    from orthobench.cli import records
    from orthobench.plugins import Catalog, PluginError

    catalog = Catalog(plugin or ())
    if params:
        _print_counts(_counts(catalog), json)
        return
    listed: list[dict[str, Any]] = []
    for entry in catalog:
        record: dict[str, Any] = {"kind": entry.kind, "name": entry.name, "origin": entry.origin, "problem": None}
        try:
            cls = entry.load()
        except PluginError as error:
            record["problem"] = str(error)
        else:
            if entry.kind == "probe":
                record |= {"title": cls.title, "every_epochs": cls.every_epochs, "default": cls.default}
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
            on = "" if record.get("default", True) else f" (-s probes={record['name']})"
            what = f"[red]cannot be used: {escape(fault)}[/red]" if fault else escape(f"{record['title']}{on}")
            table.add_row(record["kind"], record["name"], record["origin"], what)
        records.console().print(table)
    if check and any(record["problem"] for record in listed):
        raise typer.Exit(1)


def _counts(catalog: Any) -> list[dict[str, Any]]:
    """Every size that a paper prints, counted here."""
    import torch

    from orthobench.model import Signature
    from orthobench.papers.sizes import sizes
    from orthobench.settings import parse_assignments

    counted = []
    for size in sizes():
        cls = catalog.load("model", size.model)
        settings = cls.Settings.read(parse_assignments(size.settings.split()))
        signature = Signature(size.inputs, size.outputs, "all")
        count = cls(settings, signature, torch.Generator()).parameter_count()
        counted.append(size.model_dump() | {"count": count, "agrees": size.agrees(count)})
    return counted


def _print_counts(counted: list[dict[str, Any]], json: bool) -> None:
    from rich.table import Table

    from orthobench.cli import records

    if json:
        records.print_json(counted)
        return
    table = Table("source", "task", "model", "settings", box=None)
    for heading in ("counted", "printed"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for row in counted:
        count = row["count"] + row["embedding"]
        cells = (row[name] for name in ("source", "task", "model", "settings"))
        table.add_row(*cells, f"{count:,}", row["printed"], row["note"])
    records.console().print(table)
