"""`orthobench plugins`: list tasks, models and probes, and explain their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orthobench.cli import completion
from orthobench.cli.options import DataFolder, Json, PluginFiles

if TYPE_CHECKING:
    from orthobench.plugins import Catalog, Plugin

WIDTH = 120
PAPER_VALUES = 6
"""The largest number of values of a setting that a table lists; --json has all of them."""


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A task, model or probe to explain, or `training` for its settings.",
            autocompletion=completion.plugins,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Test all plugins, or NAME, against the contract. Exit code 1: one fails.")
    ] = False,
    params: Annotated[
        bool, typer.Option("--params", help="Show the models' parameter counts next to the papers'.")
    ] = False,
    plugin: PluginFiles = None,
    data_dir: DataFolder = None,
    json: Json = False,
) -> None:
    """List tasks, models and probes, or explain one.

    `orthobench plugins scornn` shows every setting of scornn: its default, its values, its meaning and the values
    that the papers used. `orthobench plugins training` explains batch size, epochs and the other settings of training.
    """
    from orthobench.cli.records import print_json
    from orthobench.errors import UsageError, unknown
    from orthobench.plugins import Catalog

    if name and check and ":" in name:
        raise UsageError(f"a layer has no contract to check: `orthobench plugins {name}` tries it")
    if name and params:
        raise UsageError(f"--params covers all models: leave out {name}")
    if check and params:
        raise UsageError("--check and --params are different tables: give one of them")
    catalog = Catalog(plugin or ())
    if check:
        origins = {entry.origin for entry in catalog}
        if file := next((sources.path for sources in catalog.files if sources.path not in origins), None):
            raise UsageError(
                f"{file} defines layers and no plugin, so there is no contract to check: "
                f"`orthobench plugins {file}:CLASS` tries a layer"
            )
    if params:
        from orthobench.planning.printed_sizes import count_printed_sizes

        counts = [
            each.size.model_dump() | {"count": each.count, "agrees": each.agrees}
            for each in count_printed_sizes(catalog)
        ]
        print_json(counts) if json else _print_counts(counts)
        return
    if name and not check:
        explanation = _explanation(catalog, name)
        print_json(explanation) if json else _print_explanation(explanation)
        return

    def is_named(entry: Plugin) -> bool:
        return name in (None, entry.name, f"{entry.kind}/{entry.name}")

    listed = [_listed(entry, check) for entry in catalog if is_named(entry)]
    listed += [_identity(entry) | {"problem": reason} for entry, reason in catalog.broken if is_named(entry)]
    if name and not listed:
        raise unknown("task, model or probe", name, {entry.name for entry in catalog})
    if json:
        print_json(listed)
    elif check:
        _print_problems(listed)
        typer.echo(_verdict(listed))
    else:
        _print_list(listed)
        typer.echo("orthobench plugins NAME explains the settings of a task or model.")
    if check and any(record["problem"] for record in listed):
        raise typer.Exit(1)


def _identity(entry: Plugin) -> dict[str, Any]:
    return {"kind": entry.kind, "name": entry.name, "origin": entry.origin, "problem": None}


def _listed(entry: Plugin, check: bool) -> dict[str, Any]:
    """Return the record of a plugin for the list, with the reason if it cannot be used."""
    from orthobench.spec.index import description

    known = description(entry)
    record = {
        name: value for name, value in known.items() if name not in ("paper", "cites", "look", "protocol", "quick")
    }
    if "settings" in record:
        record["settings"] = sorted(setting["name"] for setting in record["settings"])
    if check and not record["problem"]:
        from orthobench.errors import MissingDataError
        from orthobench.testing import problems

        try:
            record["problem"] = _joined(problems(entry.kind, entry.load())) or None
        except MissingDataError as error:
            record["unchecked"] = str(error)
    return record


def _joined(failures: list[str]) -> str:
    """Return the failures of checks as one text, in which checks that fail for the same reason share it."""
    by_reason: dict[str, list[str]] = {}
    for check, _, reason in (failure.partition(": ") for failure in failures):
        by_reason.setdefault(reason, []).append(check)
    parts = []
    for reason, (first, *others) in by_reason.items():
        more = f" and {len(others)} other check{'s' * (len(others) > 1)}" if others else ""
        parts.append(f"{first}{more}: {reason}")
    return "; ".join(parts)


def _explanation(catalog: Catalog, name: str) -> dict[str, Any]:
    """Describe a task, model, probe or `training`, with its settings.

    Raises:
        UsageError: no plugin has this name, several kinds have it, or the plugin cannot be loaded.
    """
    from orthobench.arrays.words import is_own_data
    from orthobench.spec.index import description, index

    if name == "training":
        return {"kind": "training", "name": name, "title": "settings of training, the same for all models"} | {
            "settings": _with_papers(index()["training"], "training", "")
        }
    entry = catalog.find_any(name)
    record = description(entry)
    if record["problem"]:
        catalog.load(entry.kind, entry.name)  # raises the error
    if entry.kind == "probe":
        return record
    if entry.kind == "model" and not entry.is_built_in:
        from orthobench.bench.before_training import diagnose
        from orthobench.spec.resolve import left_to_protocol

        model = catalog.load("model", entry.name)
        record |= {"diagnosis": diagnose(model, catalog.load("model", "lstm"))}
        for setting in record["settings"]:
            if setting["name"] in left_to_protocol(model.Settings):
                setting["meaning"] += "; if the task's protocol names one, that is the default"
    if is_own_data(entry.name):
        own = catalog.load("task", entry.name)
        record |= {"data": own.remark(own.Settings.read({}))}
    return record | {"settings": _with_papers(record["settings"], entry.kind, entry.name)}


def _with_papers(
    settings: list[dict[str, Any]], kind: Literal["task", "model", "training"], name: str
) -> list[dict[str, Any]]:
    """Return the descriptions of settings, each with the values that papers used."""
    from dataclasses import asdict

    from orthobench.papers.usage import paper_values

    used = paper_values(kind, name)
    return [setting | {"papers": [asdict(value) for value in used.get(setting["name"], ())]} for setting in settings]


def _print_explanation(explanation: dict[str, Any]) -> None:
    import textwrap

    from rich.text import Text

    from orthobench.cli.records import console
    from orthobench.settings import text

    out = console()
    title = "" if explanation["title"] == explanation["name"] else f": {explanation['title']}"
    kind = "" if explanation["kind"] == explanation["name"] else f"{explanation['kind']} "
    out.print(Text(f"{kind}{explanation['name']}{title}", style="bold"))
    for line in (explanation.get("paper"), explanation["origin"] if "layer" in explanation else ""):
        if line:
            out.print(Text(line))
    if explanation["kind"] == "probe":
        out.print(Text(explanation["schedule"]))
        use = "Every run has it." if explanation["default"] else f"Add it to a run: -s probes={explanation['name']}"
        out.print(Text(use))
        return
    for line in explanation.get("layer", ()):
        out.print(Text(f"{line[0].upper()}{line[1:]}{'' if line.endswith('?') else '.'}"))
    if data := explanation.get("data"):
        out.print(Text(data))
    if diagnosis := explanation.get("diagnosis"):
        _print_diagnosis(diagnosis)
    for setting in explanation["settings"]:
        symbol = f" ({setting['symbol']})" if setting["symbol"] else ""
        out.print()
        out.print(Text(f"{setting['name']}{symbol} = {setting['default'] or '(no default)'}", style="bold"))
        lines = [setting["meaning"], f"values: {setting['values']}"]
        if values := setting["papers"]:
            shown = [f"{text(value['value'])} ({'; '.join(value['sources'])})" for value in values[:PAPER_VALUES]]
            more = len(values) - len(shown)
            lines.append(f"papers: {', '.join(shown)}" + (f" and {more} more (--json)" if more else ""))
        for line in lines:
            typer.echo(textwrap.fill(line, min(out.width, WIDTH), initial_indent="    ", subsequent_indent="    "))
    out.print()
    for preset, words in (("protocol", "Settings of training on this task"), ("quick", "--preset quick sets")):
        if pairs := explanation.get(preset):
            out.print(Text(f"{words}: {', '.join(f'{key}={value}' for key, value in pairs.items())}."))
    out.print(Text("-s NAME=VALUE changes a setting. A run starts from the nearest experiment of a paper, if any."))
    if explanation["kind"] != "training":
        out.print(Text("orthobench plugins training explains the settings of training."))


def _print_diagnosis(diagnosis: dict[str, Any]) -> None:
    """Print what was measured of a model before training: its place, its gradient through time, a step's cost."""
    from rich.filesize import decimal
    from rich.table import Table
    from rich.text import Text

    from orthobench.cli.records import cell, console

    out = console()
    if diagnosis["defined"]:
        out.print(Text(f"Defined in {diagnosis['defined']}."))
    if diagnosis["gradients"]:
        out.print(Text("Norms of the gradient of the last output with respect to the inputs of a step:"))
        table = Table("", "steps", "first step", "middle", "last step", "factor per step", box=None)
        for row in diagnosis["gradients"]:
            for name in ("model", "lstm"):
                norms = row[name]
                values = (cell(norms[each]) for each in ("first", "middle", "last", "factor"))
                table.add_row("this layer" if name == "model" else "LSTM", str(row["steps"]), *values)
        out.print(table)
    if step := diagnosis["step"]:
        counts = f"{diagnosis['parameters']:,} parameters (LSTM {diagnosis['lstm_parameters']:,})"
        time = f"{step['seconds'] * 1e3:.3g} ms a training step, {step['times']:.3g} times the LSTM's"
        memory = f"{decimal(step['bytes'])} kept for the backward pass (LSTM {decimal(step['lstm_bytes'])})"
        shape = f"{step['steps']} steps, batch {step['batch']}, hidden_size={diagnosis['hidden_size']}"
        out.print(Text(f"{counts}; {time}; {memory}; for {shape}, on the CPU."))
    for line in diagnosis["missing"]:
        out.print(Text(f"{line[0].upper()}{line[1:]}."))


def _print_list(listed: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from orthobench.cli.records import console

    table = Table("kind", "name", "origin", "title", box=None)
    for record in listed:
        fault = record["problem"]
        option = "" if record.get("default", True) else f" (-s probes={record['name']})"
        title = Text(f"cannot be used: {fault}", style="red") if fault else Text(f"{record['title']}{option}")
        table.add_row(record["kind"], record["name"], record["origin"], title)
    console().print(table)


def _print_problems(listed: list[dict[str, Any]]) -> None:
    """Print the plugins that do not meet the contract, or could not be checked, with the reasons."""
    for record in listed:
        if reason := record["problem"]:
            typer.echo(f"{record['kind']} {record['name']} ({record['origin']}): {reason}")
        elif "unchecked" in record:
            typer.echo(f"{record['kind']} {record['name']} is not checked: {record['unchecked']}")


def _verdict(listed: list[dict[str, Any]]) -> str:
    """Return the last line of a check."""
    from orthobench.errors import counted

    failing = [f"{record['kind']} {record['name']}" for record in listed if record["problem"]]
    unchecked = [f"{record['kind']} {record['name']}" for record in listed if "unchecked" in record]
    rest = f" Not checked, as the data is missing: {', '.join(unchecked)}." if unchecked else ""
    if failing:
        fail = f"do{'es' * (len(failing) == 1)} not meet the contract: {', '.join(failing)}"
        return f"{len(failing)} of {counted(len(listed), 'plugin')} {fail}.{rest}"
    meets = f"{len(listed) - len(unchecked)} of {counted(len(listed), 'plugin')}"
    return f"All is well: {meets} meet{'s' * (len(listed) == 1)} the contract.{rest}"


def _print_counts(counts: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from orthobench.cli.records import console

    table = Table("source", "task", "model", "settings", box=None)
    for heading in ("counted", "published"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for row in counts:
        count = row["count"] + row["embedding"]
        cells = (row[name] for name in ("source", "task", "model", "settings"))
        table.add_row(*cells, f"{count:,}", row["printed"], row["note"])
    console().print(table)
