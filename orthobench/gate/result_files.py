"""The findings of a check as text: the cells of a table, JUnit XML for CI systems, and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from orthobench.gate.verdict import Finding, Moments, findings_summary
from orthobench.system.files import check_folder, write_text
from orthobench.system.kinds import refuse_other_kinds

VERDICT, WHY = "verdict", "why"
NOTE = (
    "Mean ± standard deviation (seeds). Lost: difference of the means, with its upper bound at 95 %. "
    "In parentheses: shown, not counted."
)
"""The note below the Markdown table."""


def cells(finding: Finding) -> dict[str, str]:
    """Return a finding by heading: means with standard deviations, and the loss with its upper bound."""
    before, now = map(_mean, finding.moments)
    return {
        "run": finding.run,
        "metric": finding.metric,
        "baseline": before,
        "now": now,
        "lost (95 %)": "" if finding.loss is None else f"{finding.loss:+.3g} (< {finding.upper:.3g})",
        "allowed": "" if finding.allowed is None else f"{finding.allowed:.3g}",
        VERDICT: finding.verdict if finding.counts or finding.passes else f"({finding.verdict})",
        WHY: finding.reason,
    }


def _mean(moments: Moments | None) -> str:
    if moments is None:
        return ""
    spread = "" if moments.deviation is None else f" ± {moments.deviation:.2g}"
    return f"{moments.mean:.4g}{spread} ({moments.n})"


def refuse_files(junit: Path | None, markdown: Path | None) -> None:
    """Refuse files that could not be written, before hours of training.

    Raises:
        UsageError: a file has another kind, or its folder does not exist.
    """
    for file, kind in ((junit, "XML"), (markdown, "Markdown")):
        if file is not None:
            check_folder(file)
            refuse_other_kinds(file, kind)


def write_files(findings: Sequence[Finding], junit: Path | None, markdown: Path | None) -> None:
    """Write findings as JUnit XML and as a Markdown table.

    Raises:
        StorageError: a file cannot be written.
    """
    if junit is not None:
        write_text(junit, as_junit(findings))
    if markdown is not None:
        write_text(markdown, as_markdown(findings))


def as_markdown(findings: Sequence[Finding]) -> str:
    """Return findings as Markdown: a heading, a table and a note on its columns."""
    rows = [[*cells(finding).values()] for finding in findings]
    table = [[*cells(findings[0])], ["---"] * len(rows[0]), *rows] if findings else []
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join([f"### orthobench check: {findings_summary(findings)}", "", *lines, "", NOTE, ""])


def as_junit(findings: Sequence[Finding]) -> str:
    """Return findings as JUnit XML."""
    endings = [finding.ending for finding in findings]
    counts = {f"{kind}s": endings.count(kind) for kind in ("failure", "error")} | {"skipped": endings.count("skipped")}
    attributes = {name: str(count) for name, count in ({"tests": len(endings)} | counts).items()}
    root = ElementTree.Element("testsuite", {"name": "orthobench check", **attributes})
    for finding in findings:
        case = ElementTree.SubElement(
            root, "testcase", classname=f"orthobench.check.{finding.run}", name=finding.metric
        )
        shown = cells(finding)
        text = "\n".join(f"{heading}: {cell}" for heading, cell in shown.items() if cell)
        if finding.ending == "skipped":
            ElementTree.SubElement(case, "skipped", message=finding.reason)
        elif finding.ending == "passed":
            ElementTree.SubElement(case, "system-out").text = text
        else:
            message = f"{shown[VERDICT]}: {finding.reason}"
            ElementTree.SubElement(case, finding.ending, type=shown[VERDICT], message=message).text = text
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
