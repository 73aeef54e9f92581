"""The pages of models, tasks, probes and the settings of training, generated from the plugins themselves."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from textwrap import dedent
from typing import Any, Literal

import torch

import orthobench.nn
from orthobench.data.registry import datasets
from orthobench.errors import OrthobenchError
from orthobench.model import Signature
from orthobench.papers.usage import paper_values
from orthobench.plugins import Catalog
from orthobench.probes.orthogonality import EXACT
from orthobench.reporting.tables.condition_tables import condition_table
from orthobench.settings import describe_settings, text
from orthobench.task import TrainingSettings
from workshop.website import figures, results
from workshop.website.equations import docstring_parts, mathml
from workshop.website.markdown import escape, fenced, page, table

CATALOG = Catalog()
SETTING = ["setting", "default", "meaning and values", "in the papers"]
SHOWN = 3
"""The largest number of a setting's values in a cell; `orthobench plugins NAME` shows more, with their sources."""


def plugin_pages() -> dict[str, str]:
    """Return the indexes and pages of all plugins, by path."""
    pages = {}
    for kind, make in (("model", _model), ("task", _task), ("probe", _probe)):
        names = CATALOG.names(kind)  # type: ignore[arg-type]
        rows = []
        own = {}
        for name in names:
            cls = CATALOG.load(kind, name)  # type: ignore[arg-type]
            own[f"{kind}s/{name}.md"] = make(name, cls)
            rows.append([f"[`{name}`]({name}.md)", escape(cls.title), _purpose(cls)])
        intro = "`orthobench plugins` lists those of an installation, with those of other packages."
        pages[f"{kind}s/index.md"] = page(f"# {kind.capitalize()}s", intro, table([kind, "title", "about"], rows))
        pages |= own
    pages["reference/training.md"] = page(
        "# Settings of training",
        "Every run has these settings. A task's protocol, a paper's experiment, a preset and `-s NAME=VALUE` set them.",
        _settings(TrainingSettings, "training", ""),
    )
    return pages


def _doc(cls: Any) -> str:
    """Return the docstring of the plugin's file, followed by the docstring of its class if it has its own."""
    own = inspect.getdoc(cls) if cls.__dict__.get("__doc__") else None
    parts = [sys.modules[cls.__module__].__doc__, own and own.partition("\nAttributes:")[0]]
    return "\n\n".join(part for part in parts if part)


def _purpose(cls: Any) -> str:
    """Return the first sentence of a plugin's docstring."""
    paragraph = re.sub(r" \([^()]*\)", "", docstring_parts(_doc(cls))[0])
    return escape(re.split(r"(?<=[.:])\s", re.sub(r"^[\w ,-]+: (?=\w)", "", paragraph), maxsplit=1)[0].rstrip(".:"))


def prose(paragraph: str) -> str:
    """Convert a paragraph of a docstring to Markdown; numbers of discrepancies become links to their page."""
    if paragraph.startswith("|"):
        header, _, *rows = (
            [escape(cell.strip()) for cell in line.strip("| ").split("|")] for line in paragraph.splitlines()
        )
        return table(header, rows)
    return re.sub(r"\bD-\d+\b", lambda match: f"[{match[0]}](../discrepancies.md)", escape(paragraph))


def _settings(cls: Any, kind: Literal["task", "model", "training"], name: str) -> str:
    """Build the table of a plugin's settings."""
    used = paper_values(kind, name)
    rows = []
    for setting in describe_settings(cls):
        symbol = f" ({escape(setting.symbol)})" if setting.symbol else ""
        recorded = used.get(setting.name, ())
        papers = ", ".join(escape(text(value.value)) for value in recorded[:SHOWN])
        papers += f" and {len(recorded) - SHOWN} more" if len(recorded) > SHOWN else ""
        default = f"`{setting.default}`" if setting.default else ""
        meaning = f"{escape(setting.meaning)}<br><small>{escape(setting.values)}</small>"
        rows.append([f"`{setting.name}`{symbol}", default, meaning, papers])
    return table(SETTING, rows)


def _scores(cls: Any) -> str:
    """Name the matrices whose distance from orthogonal is measured, and the model's state with the default settings."""
    model = cls(cls.Settings(), Signature(2, 1, "last"), torch.Generator().manual_seed(0))
    matrices = model.recurrent_matrices()
    step = ", ".join(f"`{each}`" for each in matrices if each in model.step_matrices)
    inside = ", ".join(f"`{each}`" for each in matrices if each not in model.step_matrices)
    size = sum(part.shape[-1] for part in model.initial_state(1))
    facts = {
        "matrices of a step": step,
        "matrices inside gates and derivatives": inside,
        "numbers of the state": f"{size:,}",
        "the step's Jacobian": "estimated" if size > EXACT else "computed",
    }
    known = "; ".join(f"{name}: {value}" for name, value in facts.items() if value)
    return f"[Distance from orthogonal](../tasks-and-models.md#distance-from-orthogonal): {known}."


def _model(name: str, cls: Any) -> str:
    first, equations, others = docstring_parts(_doc(cls))
    formulas = "\n".join(f'<div class="equation">{mathml(equation)}</div>' for equation in equations)
    facts = [f"Paper: {escape(cls.paper)}.", _scores(cls)]
    if cls.orthogonal:
        facts.append("Every recurrent matrix is orthogonal or unitary by construction.")
    if cls.cost:
        facts.append(f"Cost: {escape(cls.cost)}.")
    if cls.waits:
        facts.append(f"On CUDA a training step cannot be recorded as a CUDA graph: {escape(cls.waits)}.")
    layer = next(n for n in orthobench.nn.__all__ if getattr(getattr(orthobench.nn, n), "model", None) is cls)
    return page(
        f"# {escape(cls.title)}",
        prose(first),
        *figures.matrix_figure(model=name),
        f'<div class="equations">\n{formulas}\n</div>',
        *map(prose, others),
        "\n".join(f"* {fact}" for fact in facts),
        fenced(f"orthobench run adding {name} --preset quick"),
        f"As a layer of other programs: [`orthobench.nn.{layer}`](../layers.md).",
        "## Settings",
        _settings(cls.Settings, "model", name),
        "## Measured",
        *_measured(name),
    )


def _measured(model: str) -> list[str]:
    """Return the parts of a page about the measurements of a model."""
    parts = []
    numbers, claims = [], []
    for entry in results.decided():
        link = f"[{entry.paper.paper.key}, {entry.part.artifact.name}](../papers/{entry.paper.paper.key}.md)"
        if entry.model != model:
            continue
        if entry.cell:
            row, label, cell = entry.cell
            seeds = str(cell.measured.n if cell.measured else 0)
            numbers.append(
                [link, escape(f"{row}, {label}"), cell.printed.text, str(cell.measured), seeds, escape(cell.words)]
            )
        elif entry.claim:
            claims.append([link, escape(entry.claim.claim.text), entry.claim.verdict, escape(entry.claim.reason)])
    if numbers:
        header = ["paper", "number", "published", "measured [90 % interval]", "seeds", "verdict"]
        parts += ["### Compared with the papers", table(header, numbers)]
    if claims:
        parts += ["### The papers' claims", table(["paper", "claim", "here", "measured"], claims)]
    if rows := results.learned(model):
        parts += ["### All reference runs", table(results.LEARNED, rows)]
    if rows := results.gate_values(model):
        about = "The [gate](../check.md) of this project compares each change with these values, at a small size."
        parts += ["### In the gate's baseline", about, table(results.GATE, rows)]
    if speed := results.time_per_step().get(model):
        link = "[the measured table](../workshop/benchmarks/RESULTS.md#every-model)"
        heads = ["a training step", "relative to scoRNN's at the same size and batch"]
        parts += ["### Speed", table(heads, [[*speed]]), f"The sizes and the machine: {link}."]
    return parts


def _task(name: str, cls: Any) -> str:
    baselines = _baselines(cls)
    metrics = [
        [
            f"`{metric.name}`",
            escape(metric.label or metric.name),
            "lower is better" if metric.goal == "min" else "higher is better",
            escape(metric.unit or ("a fraction" if metric.is_fraction else "")),
            f"{baselines[metric.name]:.4g}" if metric.name in baselines else "",
        ]
        for metric in cls.metrics
    ]
    presets = [
        [title, ", ".join(f"`{key}={text(value)}`" for key, value in getattr(cls, attribute).items())]
        for title, attribute in (("the literature's protocol", "protocol"), ("`--preset quick`", "quick"))
        if getattr(cls, attribute)
    ]
    conditions = results.everything().conditions
    tables = [condition_table(each, conditions) for each in conditions if each.task == name]
    measured = [
        part
        for own in tables
        for part in (f"### {escape(own.title)}", table(list(map(escape, own.headings)), _escaped(own.rows)))
    ]
    needed = [each for each in datasets().values() if name in (each.name, each.name.partition("_")[0])]
    data = [f"* `{each.name}`: {escape(each.title)}, licence: {escape(each.licence)}." for each in needed]
    first, *others = _blocks(_doc(cls))
    return page(
        f"# {escape(cls.title[:1].upper() + cls.title[1:])}",
        first,
        *figures.matrix_figure(task=name),
        *(figures.curves_of(name) or ["The reference results have no run of this task yet."]),
        *others,
        fenced(f"orthobench run {name} scornn --preset quick"),
        *(["## Data", "`orthobench data` [gets or imports](../data.md) the files.", "\n".join(data)] if data else []),
        "## Metrics",
        "The first metric ranks models. The last column has the best value without memory, at the default settings.",
        table(["metric", "label", "goal", "unit", "without memory"], metrics),
        "## Settings",
        _settings(cls.Settings, "task", name),
        table(["preset", "settings"], presets),
        *(["## Measured", *measured] if measured else []),
    )


def _escaped(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[escape(cell) for cell in row] for row in rows]


def _baselines(cls: Any) -> dict[str, float]:
    """Return the scores of the best predictor without memory; nothing if they depend on data that is missing."""
    try:
        scores: dict[str, float] = cls.baselines(cls.Settings())
    except OrthobenchError:  # the data set is missing
        return {}
    return scores


def _blocks(doc: str) -> list[str]:
    """Convert a docstring to Markdown, and keep its indented lines as they are."""
    blocks = re.split(r"\n\s*\n", doc.strip())
    return [fenced(dedent(block), "text") if block.startswith("    ") else prose(block) for block in blocks]


def _probe(name: str, cls: Any) -> str:
    use = "Every run has it." if cls.default else f"Add it to a run: `-s probes={name}`."
    return page(
        f"# {escape(name)}",
        f"{escape(cls.title[:1].upper() + cls.title[1:])}.",
        *_blocks(_doc(cls)),
        f"Paper: {escape(cls.paper)}. {cls.schedule()} {use}",
    )
