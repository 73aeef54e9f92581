"""The matrix of the overview: how far each model gets on each task."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.inference import seeds_of_ranking, standings_in_ranking
from orthobench.analysis.judged import WORDS, Judged, first_paper, how_judged, precedence
from orthobench.analysis.overall import Overall, overall
from orthobench.analysis.scores import all_solve
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.analysis.variants import group
from orthobench.arrays.words import word_of
from orthobench.errors import shell_command
from orthobench.plugins.layers import is_layer
from orthobench.reporting.account.editions import find_editions, is_comparison, members
from orthobench.reporting.account.matrix_cell import MatrixCell, cell_of, gains
from orthobench.reporting.account.names import KINDS, MEASURES, NO_LABELS, in_words, name_of, short_labels
from orthobench.settings import text
from orthobench.spec.index import built_in
from orthobench.store import Run

REPEATED = 3
"""A setting of a model separates its rows if its values differ within at least this many tasks."""
TRAINS = re.compile(r"(.*_)?(learning_rate|optimizer)|weight_decay|decay_exempt")
"""The settings of a model that separate no rows, because they say how it trains and not what it is."""
FILL = "orthobench compare-tuned"
"""The command that fills the first block."""
FAMILIES = {
    "orthogonal": "Orthogonal, unitary",
    "gated": "Gated",
    "plain": "Plain",
    "linear": "Linear in the state",
    "ODE": "Discretised ODEs",
    "other": "Your own",
}
"""The families of built-in models and those of users' models, in order, in words; others have their own names."""
MANY, SPARSE = 40, 0.25
"""Rows with results on a smaller share of the tasks than `SPARSE` are folded in a matrix with more rows than `MANY`."""


@dataclass(frozen=True)
class MatrixColumn:
    """A task with its settings, or several that divide the same data differently into training and validation.

    Attributes:
        conditions: those with the most variants come first.
        command: what trains the model MODEL on the first of them.
        block: how its numbers came about: "tuned" if a search chose any of them, else "published" if any has the
            settings of a paper, else "own", or "quick" if all are quick presets.
    """

    conditions: list[Condition]
    label: str
    command: str
    block: Judged = "own"

    @property
    def paper(self) -> str:
        """The paper whose experiments `run` takes first of those with a cell here, by its key; "" without any."""
        return first_paper(variant for condition in self.conditions for variant in members(condition))

    @property
    def is_folded(self) -> bool:
        """Whether the column is shown on request only."""
        return self.block == "quick"

    @property
    def condition(self) -> Condition:
        return self.conditions[0]


@dataclass(frozen=True)
class MatrixRow:
    """A model, or its variants with one value of a setting. The cells are in the order of the columns.

    Attributes:
        family: the family of a built-in model, or where the class of a layer is, such as "torch.nn".
        is_folded: whether the row is shown on request only.
        overall: one score over all tuned columns; None if there are fewer than two, or if the model lacks one.
        is_variant: whether the label names a value of a setting, because the model has other rows.
    """

    label: str
    model: str
    family: str
    cells: list[MatrixCell | None]
    is_folded: bool
    overall: Overall | None = None
    is_variant: bool = False


@dataclass(frozen=True)
class ResultMatrix:
    """The models with a result on any of the tasks, by family.

    Attributes:
        earlier: the keys of the conditions that later editions replace.
    """

    columns: list[MatrixColumn]
    rows: list[MatrixRow]
    earlier: frozenset[str] = frozenset()

    @property
    def deciding(self) -> int:
        """How many seeds of each model of the fullest column would decide which are worse than the best; 0 for one."""
        most = max((sum(row.cells[at] is not None for row in self.rows) for at in range(len(self.columns))), default=0)
        return seeds_of_ranking(most) if most > 1 else 0

    @property
    def blocks(self) -> list[tuple[str, int]]:
        """The heading and the number of columns of each block that is shown, in order."""
        counts = Counter(self.columns[number].block for number in self.shown)
        return [(words, counts[block]) for block, words in WORDS.items() if counts[block]]

    @property
    def shown(self) -> list[int]:
        """The numbers of the columns that are shown: all but the folded ones, or all if every column is folded."""
        return _unfolded(self.columns)

    @property
    def has_means(self) -> bool:
        """Whether a row has a mean over the tuned columns."""
        return any(row.overall for row in self.rows)

    @property
    def folded(self) -> list[int]:
        """The numbers of the columns that are folded."""
        return sorted({*range(len(self.columns))} - {*self.shown})

    @property
    def lacks_tuned(self) -> bool:
        """Whether no model has been tuned yet."""
        return all(column.block != "tuned" for column in self.columns)

    @property
    def families(self) -> list[str]:
        return sorted({row.family for row in self.rows})


def compute_matrix(conditions: Sequence[Condition], labels: Mapping[str, str] = NO_LABELS) -> ResultMatrix:
    """Compute the matrix of these conditions.

    Tasks without a baseline or a perfect value are left out, and so are those of which no run trained for an epoch,
    unless their models are tuned alike. Where some tasks have a paper's own experiment, or three seeds of several
    models, the other ones are left out as well, because they are trials. Columns are in blocks by how their numbers
    came about (`MatrixColumn.block`). In each block the tasks with the most results come first, each by its lengths.
    Rows are in the order of their families, and of their names.

    A model's cell shows its tuned variant, or else the one with the settings of a paper's experiment; `precedence` has
    the whole order. With other settings, a variant that has a tag counts only if its model has no other one on the
    task. One tagged as tried never does, because the test has chosen among the trials. An earlier edition is left out
    (`Editions`).

    Args:
        labels: the user's names of models, by their stored names.
    """
    editions = find_editions([condition for condition in conditions if members(condition)])
    current = [condition for condition in map(editions.without_earlier, conditions) if members(condition)]
    compared = [
        condition
        for condition in current
        if condition.key in editions.later or _block([condition]) == "tuned" or is_comparison(condition)
    ]
    chosen = compared or current
    order = list(dict.fromkeys(condition.task for condition in chosen))
    chosen.sort(key=lambda condition: (order.index(condition.task), condition.settings.get("sequence_length") or 0))
    alike = [sorted(each, key=lambda condition: -len(members(condition))) for each in group(chosen, _same_data)]
    columns = []
    for is_folded in (False, True):  # apart, because folded columns would lengthen the names of the others
        own = [each for each in alike if (_block(each) == "quick") == is_folded]
        columns += [
            MatrixColumn(each, _with_measure(label, each[0]), _command(each[0], _block(each)), _block(each))
            for each, label in zip(own, short_labels([first for first, *_ in own]), strict=True)
        ]
    columns = _in_order(columns)
    families = families_of_models()
    separating = _separating_settings(chosen)
    names: dict[tuple[str, str], list[MatrixCell | None]] = {}
    papers_of = [column.paper for column in columns]
    placed = (
        (number, cell_of(condition, variant))
        for number, column in enumerate(columns)
        for condition in column.conditions
        for variant in members(condition)
    )
    for number, cell in placed:
        run = cell.variant.run
        setting = separating.get(run.model)
        # A search that chose the value speaks for the model itself.
        value = "" if cell.choice and setting in cell.choice.settings else _value(run, setting)
        cells = names.setdefault((run.model, value), [None] * len(columns))
        other = cells[number]
        paper = papers_of[number]
        if other is None or _precedence(cell, paper) > _precedence(other, paper):
            cells[number] = cell
    for number, column in enumerate(columns):
        _rank(list(names.values()), number, column.condition.key)
    tuned = [number for number, column in enumerate(columns) if column.block == "tuned"]
    rows = []
    for (model, value), cells in names.items():
        where = model.partition(":")[0] if is_layer(model) else "other"
        is_sparse = len(cells) - cells.count(None) < SPARSE * len(cells)
        family = families.get(model, where)
        label = ", ".join(filter(None, (name_of(model, labels), value)))
        rows.append(
            MatrixRow(
                label,
                model,
                family,
                cells,
                is_sparse and len(names) > MANY,
                _overall([cells[n] for n in tuned]),
                is_variant=bool(value),
            )
        )
    rows.sort(key=lambda row: place_in_families(row.family, row.label))
    return ResultMatrix(columns, rows, editions.earlier)


def _with_measure(label: str, condition: Condition) -> str:
    """Add to a column's label what it counts, if other figures of the task count something else."""
    return ", ".join(filter(None, (label, MEASURES.get(condition.task))))


def place_in_families(family: str, label: str) -> tuple[int, str, str]:
    """Return the place of a model in the order of families, and of names within one."""
    return [*FAMILIES, family].index(family), family, label.lower()


def _in_order(columns: Sequence[MatrixColumn]) -> list[MatrixColumn]:
    """Return columns by block, in it by task, those with most models first, and of a task by length."""
    most: dict[tuple[Judged, str], int] = {}
    for column in columns:
        key = column.block, column.condition.task
        most[key] = max(_models_of(column), most.get(key, 0))

    def place(column: MatrixColumn) -> tuple[int, int, str, int, int]:
        task = column.condition.task
        length = column.condition.settings.get("sequence_length")
        return (
            [*WORDS].index(column.block),
            -most[column.block, task],
            task,
            length if isinstance(length, int) else 0,
            -_models_of(column),
        )

    return sorted(columns, key=place)


def _overall(cells: Sequence[MatrixCell | None]) -> Overall | None:
    """Return one score over the tuned columns, if all of them have a tuned cell."""
    if len(cells) < 2 or not all(cell and cell.judged == "tuned" for cell in cells):
        return None
    return overall([cell.variant.solved_shares for cell in cells if cell])


def _unfolded(columns: Sequence[MatrixColumn]) -> list[int]:
    """Return the numbers of the columns that are not folded; all of them if every column is."""
    return [number for number, column in enumerate(columns) if not column.is_folded] or [*range(len(columns))]


def _rank(rows: Sequence[list[MatrixCell | None]], number: int, condition: str) -> None:
    """Set how the cells of a column stand next to the best one of its condition with this key."""
    ranked = [(cells, cell) for cells in rows if (cell := cells[number]) and cell.condition.key == condition]
    ranked.sort(key=lambda each: -statistics.median(gains(each[1].variant)))
    samples = [gains(cell.variant) for _, cell in ranked]
    solved = [all_solve(cell.variant.scored) for _, cell in ranked]
    for (cells, cell), standing in zip(ranked, standings_in_ranking(samples, solved), strict=True):
        cells[number] = replace(cell, standing=standing, is_compared=True)


def families_of_models() -> dict[str, str]:
    """Return the family of each built-in model that names one."""
    models = [plugin for plugin in built_in()["plugins"].values() if plugin["kind"] == "model"]
    return {model["name"]: model["family"] for model in models if model.get("family")}


def _same_data(condition: Condition) -> str:
    """Return a text that two conditions share if only their division into training and validation differs."""
    match condition.settings:
        case {"train_size": int(training), "validation_size": int(validation), **others}:
            return json.dumps([condition.task, training + validation, others], sort_keys=True)
        case settings:
            return json.dumps([condition.task, settings], sort_keys=True)


def _precedence(cell: MatrixCell, paper: str) -> tuple[bool | int | float, ...]:
    return precedence(cell.condition, cell.variant, paper)


def _models_of(column: MatrixColumn) -> int:
    """Return the number of models with a result in a column."""
    return len({variant.run.model for condition in column.conditions for variant in members(condition)})


def _block(conditions: Sequence[Condition]) -> Judged:
    """Return the block of the column of these conditions."""
    found = {how_judged(condition, variant) for condition in conditions for variant in members(condition)}
    first: tuple[Judged, ...] = ("tuned", "published", "own", "quick")
    return next((block for block in first if block in found), "own")


def _separating_settings(conditions: Sequence[Condition]) -> dict[str, str]:
    """Return for a model the setting whose values are the same, and several, within `REPEATED` conditions."""
    counts: dict[tuple[str, str, tuple[str, ...]], int] = {}
    for condition in conditions:
        by_model: dict[str, list[VariantData]] = {}
        for variant in members(condition):
            by_model.setdefault(variant.run.model, []).append(variant)
        for model, variants in by_model.items():
            settings = [variant.run.spec["model_settings"] for variant in variants]
            for name in {name for each in settings for name in each if not TRAINS.fullmatch(name)}:
                values = tuple(sorted({_value(variant.run, name) for variant in variants}))
                if len(values) > 1:
                    counts[model, name, values] = counts.get((model, name, values), 0) + 1
    return {model: name for (model, name, _), count in counts.items() if count >= REPEATED}


def _value(run: Run, setting: str | None) -> str:
    """Name the value of a setting of a run's model, in words that are empty for a built-in model's default.

    A run that is older than the setting does not record it, and trained with what became the default.
    """
    settings = run.spec["model_settings"]
    if setting is None or setting not in settings:
        return ""
    value = settings[setting]
    plugin = built_in()["plugins"].get(f"model/{run.model}", {"settings": []})
    defaults = [each["default"] for each in plugin["settings"] if each["name"] == setting]
    if value is False or text(value) in defaults:
        return ""
    return in_words(setting, value)


def word_of_column(condition: Condition) -> str:
    """Return the word by which `compare-tuned -t` names the column of a condition: a language, a group, or the task."""
    name, _ = KINDS.get(condition.task, ("", ""))
    return str(condition.settings.get(name, condition.task))


def _command(condition: Condition, block: Judged) -> str:
    if block == "tuned":
        return shell_command("compare-tuned", "-t", word_of_column(condition), "--models", "MODEL")
    plugin = built_in()["plugins"].get(f"task/{condition.task}", {"settings": []})
    defaults = {each["name"]: each["default"] for each in plugin["settings"]}
    settings = [
        part
        for name, value in condition.settings.items()
        if text(value) != defaults.get(name)
        for part in ("-s", f"{name}={text(value)}")
    ]
    task = word_of(condition.task, condition.settings)
    return shell_command("sweep", task, "--models", "MODEL", "--seeds", str(FEWEST_SEEDS), *settings)
