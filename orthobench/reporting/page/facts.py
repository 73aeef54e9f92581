"""The facts that an author's text names by placeholders: claims, numbers, runs, counts and settings.

The author writes reasons, and the database and the papers' files fill in what was measured. A text is a Jinja template
with the names of `Facts.vocabulary`. A remark on a claim appears under the heading of the claim's present verdict.
"""

from __future__ import annotations

import re
import statistics
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orthobench.analysis.claims import ClaimResult, count_claims
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.paper_tables import Cell
from orthobench.analysis.selection import select_runs
from orthobench.errors import UsageError, counted, unknown
from orthobench.papers import Experiment, find_paper
from orthobench.reporting.page.pages import GROUPS, ArtifactView, PaperView, compared, total_verdicts
from orthobench.settings import text
from orthobench.settings.assignments import read_conditions
from orthobench.store import Run, Status

SECTIONS = ("held", "depends on the seed", "did not hold", "few seeds", "not counted", "not decided")
"""The verdicts under which `Facts.remarks` lists claims; a claim with fewer than three seeds is in "few seeds"."""

BEGINS, ENDS = "\x02", "\x03"
"""Around a value while a text is filled in."""


@dataclass(frozen=True)
class ClaimFact:
    """A claim of a paper with its present verdict.

    Attributes:
        place: the paper and its figure or table.
    """

    place: str
    result: ClaimResult

    @property
    def text(self) -> str:
        return self.result.claim.text

    @property
    def measured(self) -> str:
        """What was measured, in words."""
        return self.result.reason

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def share(self) -> str:
        """The share of seeds or pairs for which it looks true."""
        return str(self.result.share or "no seed")

    @property
    def section(self) -> str:
        """The section of `SECTIONS` to which it belongs now."""
        if self.result.is_hollow and not self.result.claim.cannot_fail:
            return "few seeds"
        return "not counted" if self.result.is_decided and self.result.uncounted else self.result.conclusion


@dataclass(frozen=True)
class NumberFact:
    """A published number and the measured one."""

    cell: Cell

    @property
    def printed(self) -> str:
        return self.cell.printed.text

    @property
    def measured(self) -> str:
        """The measured number with its 90 % interval."""
        return str(self.cell.measured or "not measured")

    @property
    def seeds(self) -> str:
        return counted(self.cell.measured.n if self.cell.measured else 0, "seed")

    @property
    def verdict(self) -> str:
        return self.cell.words


class RunValues:
    """Values of several runs, which a text shows as one number or as the lowest and the highest."""

    def __init__(self, values: Iterable[float]) -> None:
        self.values = sorted(values)

    def __str__(self) -> str:
        return self._span(lambda value: f"{value:.3g}")

    @property
    def percent(self) -> str:
        """The values as percentages."""
        return self._span(lambda value: f"{100 * value:.3g} %")

    @property
    def median(self) -> str:
        return f"{statistics.median(self.values):.3g}" if self.values else "no value"

    def _span(self, shown: Callable[[float], str]) -> str:
        if not self.values:
            return "no value"
        ends = dict.fromkeys((shown(self.values[0]), shown(self.values[-1])))
        return " to ".join(ends)


@dataclass(frozen=True)
class RunsFact:
    """The runs that meet some conditions; values are those of the main test metric."""

    chosen: Sequence[Run]
    variants: Sequence[VariantData]

    @property
    def runs(self) -> str:
        return f"{len(self.chosen):,} run{'s' * (len(self.chosen) != 1)}"

    @property
    def seeds(self) -> str:
        """The number of seeds with a finished or diverged run."""
        return counted(len({run.seed for run in self.chosen if Status(run.status).is_final}), "seed")

    @property
    def models(self) -> str:
        return counted(len({run.model for run in self.chosen}), "model")

    @property
    def diverged(self) -> int:
        return sum(run.status == Status.DIVERGED for run in self.chosen)

    @property
    def iterations(self) -> RunValues:
        """The number of iterations of each run."""
        return RunValues(run.iterations for run in self.chosen)

    @property
    def end(self) -> RunValues:
        """The ends of the finished runs: the median of the last tenth of the tests."""
        ids = {run.id for run in self.chosen}
        return RunValues(end.value for variant in self.variants for run, end in variant.ends.items() if run in ids)

    @property
    def best(self) -> RunValues:
        """The best test of each run that has one."""
        return RunValues(run.best_value for run in self.chosen if run.best_value is not None)

    @property
    def last(self) -> RunValues:
        """The last test of each run that has one."""
        return RunValues(run.final_value for run in self.chosen if run.final_value is not None)

    @property
    def highest(self) -> RunValues:
        """The best end of all finished runs."""
        best = self._best
        return RunValues([] if best is None else [best[0]])

    @property
    def winner(self) -> str:
        """The model and the settings of the variant with the best end."""
        best = self._best
        return "no run" if best is None else f"`{best[1].label}`"

    @property
    def _best(self) -> tuple[float, VariantData] | None:
        ids = {run.id for run in self.chosen}
        ends = [(end.value, variant) for variant in self.variants for run, end in variant.ends.items() if run in ids]
        sign = self.chosen[0].main_metric.sign if self.chosen else 1.0
        return min(ends, key=lambda entry: sign * entry[0], default=None)

    @property
    def hardware(self) -> str:
        """The GPUs on which the runs were trained, with the number of runs on each."""
        facts = [run.environment.facts.get("accelerator") for run in self.chosen if run.device != "cpu"]
        named = sorted({str(name) for name in facts if name})
        return ", ".join(f"{counted(facts.count(name), 'run')} on {name}" for name in named) or "no GPU"


class Facts:
    """The facts about one report, and the remarks that an author makes on claims.

    Args:
        conditions: the measured conditions of the report.
        views: its papers.
    """

    def __init__(self, conditions: Sequence[Condition], views: Sequence[PaperView]) -> None:
        self.variants = [variant for condition in conditions for variant in condition.variants]
        self.views = views
        self.remarked: list[tuple[ClaimFact, str]] = []

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The names that a text may use."""
        return {
            "claim": self.claim,
            "number": self.number,
            "runs": self.runs,
            "setting": self.setting,
            "claims": self.claims,
            "numbers": self.numbers,
            "remark": self.remark,
            "remarks": self.remarks,
        }

    def claim(self, paper: str, artifact: str, beginning: str) -> ClaimFact:
        """Return the claim of a table or figure whose text begins with these words.

        Raises:
            UsageError: the paper, its table or figure, or the claim is unknown, or several claims begin so.
        """
        view, part = self._part(paper, artifact)
        texts = [result.claim.text for result in part.claim_results]
        found = [result for result in part.claim_results if result.claim.text.startswith(beginning)]
        exact = [result for result in found if result.claim.text == beginning] or found
        if len(exact) > 1:
            raise UsageError(f"{len(exact)} claims of {paper} {artifact} begin with '{beginning}': give more words")
        if not exact:
            raise unknown(f"claim of {paper} {artifact}", beginning, texts)
        return ClaimFact(f"{view.paper.short_name}, {artifact}", exact[0])

    def number(self, paper: str, artifact: str, row: str, column: str) -> NumberFact:
        """Return the published number in a row and column of a table.

        Raises:
            UsageError: the paper, table, row or column is unknown.
        """
        _, part = self._part(paper, artifact)
        rows = {each.label: each.cells for each in (part.table.rows if part.table else [])}
        if row not in rows:
            raise unknown(f"row of {paper} {artifact}", row, rows)
        if column not in rows[row]:
            raise unknown(f"column of {paper} {artifact}", column, rows[row])
        return NumberFact(rows[row][column])

    def runs(self, *conditions: str) -> RunsFact:
        """Return the runs that meet conditions such as "model=scornn", as `orthobench ls` reads them.

        Raises:
            UsageError: no run meets them.
        """
        every = [run for variant in self.variants for run in variant.runs]
        chosen = select_runs(every, read_conditions(conditions))
        keys = {run.variant for run in chosen}
        return RunsFact(chosen, [variant for variant in self.variants if variant.run.variant in keys])

    def setting(self, paper: str, artifact: str, row: str, name: str) -> str:
        """Return a setting of a paper's experiment, by the label of its row or curve, or by its model.

        Raises:
            UsageError: the paper, the experiment or the setting is unknown, or experiments of this name differ in it.
        """
        every: list[Experiment] = find_paper(paper).experiments_in(artifact)
        own = [each for each in every if row in (each.label, each.model)]
        if not own:
            raise unknown(f"row of {paper} {artifact}", row, (each.label for each in every))
        values = {text(each.settings[name]) for each in own if name in each.settings}
        if len(values) != 1:
            raise UsageError(f"{row} of {paper} {artifact} has {counted(len(values), 'value')} of {name}, and not one")
        return values.pop()

    @property
    def claims(self) -> dict[str, int]:
        """The counts of all claims, as headlines count them, and of those with too few seeds to count."""
        counts = count_claims([result for view in self.views for result in view.claim_results])
        names = ("decided", "confirmed", "seed_decides", "refuted", "undecided")
        return {name: getattr(counts, name) for name in names} | {"few_seeds": counts.hollow[1]}

    @property
    def numbers(self) -> dict[str, int]:
        """The counts of all measured numbers by group of verdicts, and how many are `compared`."""
        totals = total_verdicts(self.views)
        return {group: totals[group] for group in GROUPS} | {"compared": compared(totals)}

    def remark(self, fact: ClaimFact, caller: Callable[[], str]) -> str:
        """Note what the author says about a claim; `remarks` shows it under the claim's present verdict."""
        self.remarked.append((fact, _unmarked(" ".join(caller().split()))))
        return ""

    def remarks(self, section: str) -> str:
        """Return the claims of a section that the author remarks on, as a list, and how many others it has.

        Raises:
            UsageError: there is no such section.
        """
        if section not in SECTIONS:
            raise unknown("section", section, SECTIONS)
        shown = [(fact, remark) for fact, remark in self.remarked if fact.section == section]
        items = [
            f"* **{fact.text}** ({fact.place}): {fact.share}. Measured: {fact.measured}. {remark}"
            for fact, remark in shown
        ]
        every = [ClaimFact("", result) for view in self.views for result in view.claim_results if not result.same_as]
        of_section = sum(fact.section == section for fact in every)
        others = of_section - sum(not fact.result.same_as for fact, _ in shown)
        if others:
            more = "more " if shown else ""
            items.append(f"* {counted(others, f'{more}claim')} without a remark.")
        return "\n".join(items) or "None."

    def _part(self, paper: str, artifact: str) -> tuple[PaperView, ArtifactView]:
        by_paper = {view.paper.key: view for view in self.views}
        if paper not in by_paper:
            raise unknown("paper in this report", paper, by_paper)
        parts = {part.artifact.name: part for part in by_paper[paper].artifacts}
        if artifact not in parts:
            raise unknown(f"table or figure of {paper}", artifact, parts)
        return by_paper[paper], parts[artifact]


def fill_in(source: str, facts: Facts, name: str) -> str:
    """Return a text with its placeholders filled in.

    Args:
        name: what the text is called in errors.

    Raises:
        UsageError: a placeholder is malformed, or names something unknown.
    """
    environment = ImmutableSandboxedEnvironment(
        # Strict, because a misspelt name would otherwise leave nothing in its place.
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: f"{BEGINS}{value}{ENDS}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        return _unmarked(environment.from_string(source).render(facts.vocabulary))
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"{name}, line {error.lineno}: {error.message}") from error
    except (UsageError, jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
        raise UsageError(f"{name}, line {lines[-1] if lines else 1}: {error}") from error


def _unmarked(text: str) -> str:
    """Return a text without the marks around its values; a value at the start of a line begins no numbered list."""
    text = re.sub(rf"(?m)^(\s*{BEGINS}+\d+{ENDS}+)([.)])", r"\1\\\2", text)
    return text.replace(BEGINS, "").replace(ENDS, "")
