"""`orthobench plugins`: list tasks, models and probes, and explain their settings."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import DataFolder, Json, PluginFiles
from orthobench.cli.records import NAME, TEXT, cell, console, print_table
from orthobench.display import print_json
from orthobench.errors import UsageError, counted
from orthobench.options.assignments import text

WIDTH = 120
PAPER_VALUES = 6
"""The largest number of values of a setting that a table lists; --json has all of them."""


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A task, model or probe to explain, `training` for its settings, or `adapter` for a class that wraps "
            "any layer.",
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
    if name == "adapter":
        typer.echo(api.descriptions.ADAPTER, nl=False)
        return
    if name and check and ":" in name:
        raise UsageError(f"a layer has no contract to check: `orthobench plugins {name}` tries it")
    if name and params:
        raise UsageError(f"--params covers all models: leave out {name}")
    if check and params:
        raise UsageError("--check and --params are different tables: give one of them")
    if params:
        counts = api.descriptions.printed_sizes(plugin or ())
        print_json(counts) if json else _print_counts(counts)
        return
    if name and not check:
        explanation = api.descriptions.explain(name, plugin or ())
        print_json(explanation) if json else _print_explanation(explanation)
        return
    listed = api.descriptions.list_plugins(plugin or (), name, check)
    if json:
        print_json(listed)
    elif check:
        _print_problems(listed)
        typer.echo(_verdict(listed))
    else:
        _print_list(listed)
        console().print("orthobench plugins NAME explains the settings of a task or model.")
    if check and any(record["problem"] for record in listed):
        raise typer.Exit(1)


def _print_explanation(explanation: dict[str, Any]) -> None:
    out = console()
    title = "" if explanation["title"] == explanation["name"] else f": {explanation['title']}"
    kind = "" if explanation["kind"] == explanation["name"] else f"{explanation['kind']} "
    out.print(f"{kind}{explanation['name']}{title}", style="bold")
    for line in (explanation.get("paper"), explanation["origin"] if "layer" in explanation else ""):
        if line:
            out.print(line)
    if explanation["kind"] == "probe":
        out.print(explanation["schedule"])
        use = "Every run has it." if explanation["default"] else f"Add it to a run: -s probes={explanation['name']}"
        out.print(use)
        return
    for line in explanation.get("layer", ()):
        out.print(f"{line[0].upper()}{line[1:]}{'' if line.endswith('?') else '.'}")
    if data := explanation.get("data"):
        out.print(data)
    if diagnosis := explanation.get("diagnosis"):
        _print_diagnosis(diagnosis)
    for setting in explanation["settings"]:
        symbol = f" ({setting['symbol']})" if setting["symbol"] else ""
        out.print()
        out.print(f"{setting['name']}{symbol} = {setting['default'] or '(no default)'}", style="bold")
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
            out.print(f"{words}: {', '.join(f'{key}={value}' for key, value in pairs.items())}.")
    out.print("-s NAME=VALUE changes a setting. A run starts from the nearest experiment of a paper, if any.")
    if explanation["kind"] != "training":
        out.print("orthobench plugins training explains the settings of training.")


def _print_diagnosis(diagnosis: dict[str, Any]) -> None:
    """Print what was measured of a model before training: its place, its gradient through time, a step's cost."""
    out = console()
    if diagnosis["defined"]:
        out.print(f"Defined in {diagnosis['defined']}.")
    if diagnosis["gradients"]:
        out.print("Norms of the gradient of the last output with respect to the inputs of a step:")
        rows = []
        for row in diagnosis["gradients"]:
            for name in ("model", "lstm"):
                norms = row[name]
                values = (cell(norms[each]) for each in ("first", "middle", "last", "factor"))
                rows.append(("this layer" if name == "model" else "LSTM", str(row["steps"]), *values))
        print_table(("", "steps", "first step", "middle", "last step", "factor per step"), rows)
    if step := diagnosis["step"]:
        counts = f"{diagnosis['parameters']:,} parameters (LSTM {diagnosis['lstm_parameters']:,})"
        time = f"{step['seconds'] * 1e3:.3g} ms a training step, {step['times']:.3g} times the LSTM's"
        memory = f"{decimal(step['bytes'])} kept for the backward pass (LSTM {decimal(step['lstm_bytes'])})"
        shape = f"{step['steps']} steps, batch {step['batch']}, hidden_size={diagnosis['hidden_size']}"
        out.print(f"{counts}; {time}; {memory}; for {shape}, on the CPU.")
    for line in diagnosis["missing"]:
        out.print(f"{line[0].upper()}{line[1:]}.")


def _print_list(listed: list[dict[str, Any]]) -> None:
    rows = []
    for record in listed:
        option = "" if record.get("default", True) else f" (-s probes={record['name']})"
        title = f"cannot be used: {record['problem']}" if record["problem"] else f"{record['title']}{option}"
        rows.append((record["kind"], record["name"], record["origin"], title))
    print_table(
        ("kind", "name", "origin", "title"),
        rows,
        optional=["origin"],
        folds={"name": NAME, "title": TEXT},
        styles={(number, "title"): "red" for number, record in enumerate(listed) if record["problem"]},
    )


def _print_problems(listed: list[dict[str, Any]]) -> None:
    """Print the plugins that do not meet the contract, or could not be checked, with the reasons."""
    for record in listed:
        if reason := record["problem"]:
            typer.echo(f"{record['kind']} {record['name']} ({record['origin']}): {reason}")
        elif "unchecked" in record:
            typer.echo(f"{record['kind']} {record['name']} is not checked: {record['unchecked']}")


def _verdict(listed: list[dict[str, Any]]) -> str:
    """Return the last line of a check."""
    failing = [f"{record['kind']} {record['name']}" for record in listed if record["problem"]]
    unchecked = [f"{record['kind']} {record['name']}" for record in listed if "unchecked" in record]
    rest = f" Not checked, as the data is missing: {', '.join(unchecked)}." if unchecked else ""
    if failing:
        fail = f"do{'es' * (len(failing) == 1)} not meet the contract: {', '.join(failing)}"
        return f"{len(failing)} of {counted(len(listed), 'plugin')} {fail}.{rest}"
    meets = f"{len(listed) - len(unchecked)} of {counted(len(listed), 'plugin')}"
    return f"All is well: {meets} meet{'s' * (len(listed) == 1)} the contract.{rest}"


def _print_counts(counts: list[dict[str, Any]]) -> None:
    rows = []
    for row in counts:
        cells = (row[name] for name in ("source", "task", "model", "settings"))
        rows.append((*cells, f"{row['count'] + row['embedding']:,}", row["printed"], row["note"]))
    numbers = ("counted", "published")
    headings = ("source", "task", "model", "settings", *numbers, "note")
    folds = dict.fromkeys(("source", "settings", "note"), TEXT)
    print_table(headings, rows, optional=["note"], folds=folds, right=numbers)
