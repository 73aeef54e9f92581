"""Render the findings as a table for the terminal, as Markdown, as JUnit XML and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from orthobench.gate.verdict import Finding, Verdict, exit_code

HEADINGS = ("run", "metric", "baseline", "now", "lost (95 %)", "allowed", "power", "verdict", "why")
RIGHT = ("lost (95 %)", "allowed", "power")


def cells(finding: Finding) -> tuple[str, ...]:
    """Return the cells of a finding: means with standard deviations, the loss with its upper bound."""
    lost = "" if finding.loss is None else f"{finding.loss:+.3g} (< {finding.upper:.3g})"
    return (
        finding.run,
        finding.metric,
        _mean(finding.before),
        _mean(finding.now),
        lost,
        "" if finding.allowed is None else f"{finding.allowed:.3g}",
        "" if finding.power is None else f"{finding.power:.0%}",
        finding.verdict if finding.counts or finding.passes else f"({finding.verdict})",
        finding.reason,
    )


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{spread} ({len(values)})"


def summary(findings: Sequence[Finding]) -> str:
    """Return the outcome of the check and the counts of its verdicts."""
    counting = [finding.verdict for finding in findings if finding.counts]
    counts = ", ".join(f"{counting.count(verdict)} {verdict}" for verdict in Verdict if verdict in counting)
    outcome = {0: "as good as the baseline", 1: "WORSE than the baseline", 3: "NOT DECIDED"}[exit_code(findings)]
    return f"{outcome}: {counts or 'nothing was checked'}"


def table(findings: Sequence[Finding]) -> Any:
    """Return the findings as a rich table."""
    from rich.table import Table
    from rich.text import Text

    styles = dict.fromkeys(Verdict, "yellow") | {Verdict.WORSE: "red", Verdict.BETTER: "green", Verdict.SAME: ""}
    grid = Table(box=None)
    for heading in HEADINGS:
        grid.add_column(heading, justify="right" if heading in RIGHT else "left")
    for finding in findings:
        style = styles[finding.verdict] if finding.counts else ""
        grid.add_row(*(Text(cell, style=style if at == 7 else "") for at, cell in enumerate(cells(finding))))
    return grid


def markdown(findings: Sequence[Finding]) -> str:
    """Return the findings as Markdown: a heading, a table and a note on its columns."""
    rows = [HEADINGS, ["---"] * len(HEADINGS), *map(cells, findings)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    note = (
        "Mean ± standard deviation (seeds). Lost: difference of the means, with its upper bound at 95 %; "
        "power: the probability that unchanged code passes. In parentheses: shown, not counted."
    )
    return "\n".join([f"### orthobench check: {summary(findings)}", "", *lines, "", note, ""])


def junit(findings: Sequence[Finding]) -> str:
    """Return the findings as JUnit XML: `worse` is a failure, a missing or inconclusive value an error."""
    cases = []
    for finding in findings:
        case = ElementTree.Element("testcase", classname=f"orthobench.check.{finding.run}", name=finding.metric)
        text = "\n".join(f"{name}: {cell}" for name, cell in zip(HEADINGS, cells(finding), strict=True) if cell)
        if finding.verdict == Verdict.SKIPPED:
            ElementTree.SubElement(case, "skipped", message=finding.reason)
        elif finding.passes:
            ElementTree.SubElement(case, "system-out").text = text
        else:
            kind = "failure" if finding.verdict == Verdict.WORSE else "error"
            message = f"{finding.verdict}: {finding.reason}"
            ElementTree.SubElement(case, kind, type=finding.verdict, message=message).text = text
        cases.append(case)
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    suite = ElementTree.Element("testsuite", {"name": "orthobench check", **{k: str(v) for k, v in counts.items()}})
    suite.extend(cases)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings, their summary and the exit code as a JSON object."""
    return {
        "exit_code": exit_code(findings),
        "summary": summary(findings),
        "findings": [asdict(finding) | {"passes": finding.passes} for finding in findings],
    }
