"""Diagnose an installation: what is installed, what works, and how to fix the rest."""

from orthobench.diagnosis.examination import examine
from orthobench.diagnosis.findings import Diagnosis, DoctorFinding, Level

__all__ = ["Diagnosis", "DoctorFinding", "Level", "examine"]
