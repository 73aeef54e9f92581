"""Diagnose an installation: what is here, what works, and what to do about the rest."""

from orthobench.diagnosis.examination import examine
from orthobench.diagnosis.findings import Diagnosis, Finding, Level

__all__ = ["Diagnosis", "Finding", "Level", "examine"]
