"""The matrix of the overview: how far each model gets on each task."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orthobench.analysis.by_length import HELD, holds_beyond
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.horizons import fits
from orthobench.analysis.inference import MEANINGS, Standing, seeds_of_ranking, standings_in_ranking
from orthobench.analysis.judged import WORDS, Choice, Judged, choice_of, first_paper, how_judged, precedence
from orthobench.analysis.overall import Overall, overall
from orthobench.analysis.rate_search import Edge
from orthobench.analysis.scores import all_solve
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.analysis.variants import group, newer_version
from orthobench.arrays.words import word_of
from orthobench.errors import shell_command
from orthobench.plugins.layers import is_layer
from orthobench.reporting.account.names import KINDS, MEASURES, NO_LABELS, in_words, name_of, short_labels
from orthobench.settings import text
from orthobench.spec.index import built_in
from orthobench.store import Run

WHITE_FROM = 0.79
"""From here on, a cell of the light page is so dark that white text has the higher contrast, at least 4.5:1."""
TRIED = "tried"
"""The tag of runs that were tried while searching for settings."""
REPEATED = 3
"""A setting of a model separates its rows if its values differ within at least this many tasks."""
TRAINS = re.compile(r"(.*_)?(learning_rate|optimizer)|weight_decay|decay_exempt")
"""The settings of a model that separate no rows, because they say how it trains and not what it is."""
FILL = "orthobench compare-tuned"
"""The command that fills the first block."""
HOW: Mapping[Judged, str] = {
    "tuned": "tuned: the best trial",
    "published": "the settings of a paper's experiment",
    "own": "settings of its own, not tuned",
    "quick": "a quick preset",
}
EDGES = {
    "highest": "at the highest learning rate of the search, beyond which a better one may be",
    "lowest": "at the lowest learning rate of the search, beyond which a better one may be",
}
CANNOT = "linear in its inputs, so it cannot solve the task"
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
class MatrixCell:
    """How far a model gets on a task: 0 is the best predictor without memory, and 1 is a perfect value (`score_of`).

    Attributes:
        condition: the task with its settings.
        variant: the model's variant that stands for it on this task (`precedence`).
        score: the median over seeds.
        low: the lowest seed.
        high: the highest seed.
        fits: whether the model holds the lengths of the training sequences; None if they are not tested.
        holds_beyond: whether the median seed holds the multiples of the trained length; None if they are not tested.
        judged: how the number came about.
        choice: how a search chose the variant; None unless it is tuned.
        linear: why the model cannot solve the task, whatever its weights, because its outputs are an affine function of
            its inputs; empty if it could.
        standing: how the cell stands next to the best one of its column with three seeds; None for the best.
        is_compared: whether it is compared with the others: not if its training and validation data are divided in
            another way than those of most.
    """

    condition: Condition
    variant: VariantData
    score: float
    low: float
    high: float
    fits: bool | None
    holds_beyond: bool | None
    judged: Judged = "own"
    choice: Choice | None = None
    linear: str = ""

    @property
    def how(self) -> str:
        """How the number came about, as labels."""
        parts = [self.chosen_here or HOW[self.judged]]
        if self.choice:
            parts += [f"trials: {self.choice.trials}", f"fresh seeds: {self.seeds}"]
        if self.edge:
            parts.append(EDGES[self.edge])
        if self.linear:
            parts.append(f"{CANNOT}: {self.linear}")
        return "; ".join(parts)

    @property
    def chosen_here(self) -> str:
        """Why some settings of the cell's experiment were chosen here, in words; "" if all have a source."""
        experiment = self.variant.experiment
        if experiment is None or not experiment.own_settings or self.judged == "tuned":
            return ""
        return " ".join(["settings of a paper's experiment, some of which this project chose.", *experiment.notes])

    @property
    def edge(self) -> Edge:
        """Whether the model was tuned, its rate is the highest or the lowest of the search, and it could be better."""
        return self.choice.edge if self.choice and round(100 * self.score) < 100 else ""

    @property
    def version(self) -> str:
        """The version of the model whose runs these are, if it has a newer one; else ""."""
        return str(self.variant.run.spec["model_version"]) if newer_version(self.variant.run) else ""

    @property
    def raw(self) -> str:
        """The median of the metric itself, as published numbers have it."""
        value = self.variant.median
        return "" if value is None else f"{value.value:.3g}"

    @property
    def printed(self) -> str:
        """The published number for these settings, if there is one."""
        printed = self.variant.printed
        return "" if printed is None else printed.text

    standing: Standing | None = None
    is_compared: bool = False

    @property
    def is_best(self) -> bool:
        """Whether the cell learns something, and is the best of its column or as good as its seeds show.

        With fewer than three seeds it is not.
        """
        is_good = self.standing in (None, Standing.OVERLAPS, Standing.SOLVE)
        return self.is_compared and not self.has_few_seeds and self.learns and is_good

    @property
    def learns(self) -> bool:
        return self.variant.learns

    @property
    def standing_words(self) -> str:
        """How the cell stands next to the best one, in words."""
        if not self.is_compared:
            return "its data are divided in another way than those of the others, so it is not compared"
        if not self.learns:  # a cell that holds the trained lengths has learnt them
            return "its score at these lengths is below 10" if self.fits else "its median seed learns nothing"
        if self.standing is None:
            return "too few seeds to call it the best" if self.has_few_seeds else "the best"
        return MEANINGS[self.standing].replace("the first", "the best")

    @property
    def is_far(self) -> bool:
        """Whether white text is easier to read on the cell's colour than black text."""
        return self.score > WHITE_FROM

    @property
    def seeds(self) -> int:
        return len(self.variant.scores)

    @property
    def has_few_seeds(self) -> bool:
        return self.seeds < FEWEST_SEEDS

    @property
    def loses(self) -> bool:
        """Whether the model holds the training lengths and does not hold longer ones (`HELD`).

        The score is of the longer ones if a task is tested on a range of lengths, and else of the trained length.
        """
        return (self.fits is True and self.score < HELD) or (self.holds_beyond is False and self.score >= HELD)

    @property
    def is_spread(self) -> bool:
        """Whether the seeds differ in whole percents."""
        return round(100 * self.low) != round(100 * self.high)


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
        return first_paper(variant for condition in self.conditions for variant in _members(condition))

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
    editions = find_editions([condition for condition in conditions if _members(condition)])
    current = [condition for condition in map(editions.without_earlier, conditions) if _members(condition)]
    compared = [
        condition
        for condition in current
        if condition.key in editions.later or _block([condition]) == "tuned" or _is_comparison(condition)
    ]
    chosen = compared or current
    order = list(dict.fromkeys(condition.task for condition in chosen))
    chosen.sort(key=lambda condition: (order.index(condition.task), condition.settings.get("sequence_length") or 0))
    alike = [sorted(each, key=lambda condition: -len(_members(condition))) for each in group(chosen, _same_data)]
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
        (number, _cell(condition, variant))
        for number, column in enumerate(columns)
        for condition in column.conditions
        for variant in _members(condition)
    )
    for number, cell in placed:
        run = cell.variant.run
        cells = names.setdefault((run.model, _value(run, separating.get(run.model))), [None] * len(columns))
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


def _members(condition: Condition) -> list[VariantData]:
    """Return the variants of a condition that have a value from 0 to 1."""
    if condition.baseline is None or condition.perfect is None:
        return []
    runs = [run for variant in condition.variants for run in variant.runs]
    scored = [each for each in condition.variants if each.median and (each.experiment or TRIED not in each.tags)]
    is_whole = any(run.solved_at is not None or run.epochs >= 1 for run in runs)
    # A comparison that tuned all models alike counts also if its iterations are fewer than an epoch's.
    if not is_whole and not any(how_judged(condition, variant) == "tuned" for variant in scored):
        return []
    plain = {variant.run.model for variant in scored if not variant.tags}
    return [each for each in scored if each.experiment or not each.tags or each.run.model not in plain]


@dataclass(frozen=True)
class Editions:
    """Which conditions are earlier editions of others.

    A condition is an earlier edition if all its variants have tags, and another one has its task, its texts in
    settings, variants without tags, and most of its models.

    Attributes:
        earlier: the keys of the earlier editions.
        later: the keys of those that replace a comparison of several models, and count as comparisons themselves.
        tags: the tags of replaced comparisons. Their runs are left out on every task, even one without a later edition.
    """

    earlier: frozenset[str]
    later: frozenset[str]
    tags: frozenset[str]

    def without_earlier(self, condition: Condition) -> Condition:
        """Return a condition without the variants of earlier editions."""
        variants = [] if condition.key in self.earlier else condition.variants
        return replace(condition, variants=[each for each in variants if not self.tags.intersection(each.tags)])


def find_editions(conditions: Sequence[Condition]) -> Editions:
    """Find the earlier editions among conditions that have members."""

    def names(condition: Condition) -> tuple[str, list[tuple[str, str]]]:
        texts = [(name, value) for name, value in condition.settings.items() if isinstance(value, str)]
        return condition.task, sorted(texts)

    def is_tagged(condition: Condition) -> bool:
        return all(variant.tags for variant in _members(condition))

    def models(condition: Condition) -> set[str]:
        return {variant.run.model for variant in _members(condition)}

    untagged = [condition for condition in conditions if not is_tagged(condition)]
    earlier, later, tags = set[str](), set[str](), set[str]()
    for condition in filter(is_tagged, conditions):
        own = models(condition)
        newer = [
            other.key
            for other in untagged
            if names(other) == names(condition) and 2 * len(own & models(other)) > len(own)
        ]
        if newer:
            earlier.add(condition.key)
            if _is_comparison(condition):
                later.update(newer)
                tags.update(tag for variant in _members(condition) for tag in variant.tags if tag != TRIED)
    replaced = {c.key for c in conditions if all(tags.intersection(variant.tags) for variant in _members(c))}
    return Editions(frozenset(earlier | replaced), frozenset(later), frozenset(tags))


def _same_data(condition: Condition) -> str:
    """Return a text that two conditions share if only their division into training and validation differs."""
    match condition.settings:
        case {"train_size": int(training), "validation_size": int(validation), **others}:
            return json.dumps([condition.task, training + validation, others], sort_keys=True)
        case settings:
            return json.dumps([condition.task, settings], sort_keys=True)


def _is_comparison(condition: Condition) -> bool:
    """Return whether a condition has an experiment of a paper, or several models with three seeds."""
    members = _members(condition)
    of_paper = any(variant.experiment for variant in members)
    return of_paper or len({variant.run.model for variant in members if len(variant.scores) >= FEWEST_SEEDS}) > 1


def gains(variant: VariantData) -> list[float]:
    """Return the distance of each seed's end from its baseline, the greater the better; -infinity if it diverged."""
    sign = variant.run.main_metric.sign
    return [sign * (run.baselines[run.metric] - value) for run, value in variant.scored]


def _precedence(cell: MatrixCell, paper: str) -> tuple[bool | int | float, ...]:
    return precedence(cell.condition, cell.variant, paper)


def _cell(condition: Condition, variant: VariantData) -> MatrixCell:
    scores = variant.solved_shares
    return MatrixCell(
        condition,
        variant,
        statistics.median(scores),
        min(scores),
        max(scores),
        fits(variant),
        holds_beyond(variant),
        how_judged(condition, variant),
        choice_of(condition, variant),
        _why_linear_fails(variant.run),
    )


def _models_of(column: MatrixColumn) -> int:
    """Return the number of models with a result in a column."""
    return len({variant.run.model for condition in column.conditions for variant in _members(condition)})


def _block(conditions: Sequence[Condition]) -> Judged:
    """Return the block of the column of these conditions."""
    found = {how_judged(condition, variant) for condition in conditions for variant in _members(condition)}
    first: tuple[Judged, ...] = ("tuned", "published", "own", "quick")
    return next((block for block in first if block in found), "own")


def _why_linear_fails(run: Run) -> str:
    """Return why a built-in model with these settings cannot solve its task; "" if it may, or if it is not affine."""
    plugins = built_in()["plugins"]
    needed = plugins.get(f"model/{run.model}", {}).get("affine_if")
    settings = run.spec["model_settings"]
    if needed is None or any(settings.get(name) != value for name, value in needed.items()):
        return ""
    why: str = plugins.get(f"task/{run.task}", {}).get("affine_fails", "")
    return why


def _separating_settings(conditions: Sequence[Condition]) -> dict[str, str]:
    """Return for a model the setting whose values are the same, and several, within `REPEATED` conditions."""
    counts: dict[tuple[str, str, tuple[str, ...]], int] = {}
    for condition in conditions:
        by_model: dict[str, list[VariantData]] = {}
        for variant in _members(condition):
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
