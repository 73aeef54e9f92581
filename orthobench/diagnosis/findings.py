"""Findings of a diagnosis: a fact about the installation, how much it matters, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    ACTION = "action"


@dataclass(frozen=True)
class DoctorFinding:
    """A finding.

    Attributes:
        section: the part of the installation, such as "compilers".
        subject: the examined thing, such as "C compiler".
        text: what was found.
        level: ok; note, if something is missing but may not be needed; or action, if something does not work.
        fix: what the user can do; empty if nothing is wrong.
    """

    section: str
    subject: str
    text: str
    level: Level = Level.OK
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The findings of an installation, in the order of the sections."""

    findings: Sequence[DoctorFinding]

    @property
    def actions(self) -> list[DoctorFinding]:
        """The findings that need action."""
        return [finding for finding in self.findings if finding.level is Level.ACTION]

    @property
    def exit_code(self) -> int:
        """0 if nothing needs action, else 1."""
        return 1 if self.actions else 0

    def as_json(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values."""
        return {"findings": [asdict(finding) for finding in self.findings], "actions": len(self.actions)}
