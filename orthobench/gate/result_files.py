"""The files of a check: its findings as JUnit XML for CI systems, and as a Markdown table."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from orthobench.gate.verdict import Finding
from orthobench.system.files import check_folder
from orthobench.system.kinds import refuse_other_kinds

NOTE = (
    "Mean ± standard deviation (seeds). Lost: difference of the means, with its upper bound at 95 %. "
    "In parentheses: shown, not counted."
)
"""The note below the Markdown table."""


def refuse_files(junit: Path | None, markdown: Path | None) -> None:
    """Refuse files that could not be written, before hours of training.

    Raises:
        UsageError: a file has another kind, or its folder does not exist.
    """
    for file, kind in ((junit, "XML"), (markdown, "Markdown")):
        if file is not None:
            check_folder(file)
            refuse_other_kinds(file, kind)


def as_markdown(summary: str, findings: Sequence[Finding]) -> str:
    """Return findings as Markdown: a heading with their summary, a table and a note on its columns."""
    rows = [[*finding.cells.values()] for finding in findings]
    table = [[*findings[0].cells], ["---"] * len(rows[0]), *rows] if findings else []
    lines = [
        "| " + " | ".join(html.escape(cell, quote=False).replace("|", "\\|") for cell in row) + " |" for row in table
    ]
    return "\n".join([f"### orthobench check: {summary}", "", *lines, "", NOTE, ""])


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
        shown = finding.cells
        text = "\n".join(f"{heading}: {cell}" for heading, cell in shown.items() if cell)
        if finding.ending == "skipped":
            ElementTree.SubElement(case, "skipped", message=finding.reason)
        elif finding.ending == "passed":
            ElementTree.SubElement(case, "system-out").text = text
        else:
            message = f"{shown['verdict']}: {finding.reason}"
            ElementTree.SubElement(case, finding.ending, type=shown["verdict"], message=message).text = text
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
