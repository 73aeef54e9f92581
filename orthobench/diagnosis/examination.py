"""The examination of an installation, with one function per section that yields its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from orthobench.diagnosis import kernel_findings, machine, storage
from orthobench.diagnosis.findings import Diagnosis, DoctorFinding, Level
from orthobench.errors import OrthobenchError, one_line
from orthobench.system.location import Place

Check = Callable[[], Iterator[DoctorFinding]]


def examine(db: Place | None = None, retest: bool = False) -> Diagnosis:
    """Examine this installation.

    Args:
        db: the database; None for the default.
        retest: whether to compare all kernels with the reference again.
    """
    checks: list[tuple[str, Check]] = [
        ("versions", machine.versions),
        ("devices", machine.devices),
        ("compilers", machine.compilers),
        ("caches", kernel_findings.caches),
        ("back ends", kernel_findings.back_ends),
        ("self-tests", lambda: kernel_findings.self_tests(retest)),
        ("data", storage.data),
        ("database", lambda: storage.database(db)),
    ]
    return Diagnosis(list(_findings(checks)))


def _findings(checks: Sequence[tuple[str, Check]]) -> Iterator[DoctorFinding]:
    """Yield the findings of all checks; a check that fails is a finding, and the others still run."""
    for section, check in checks:
        try:
            yield from check()
        except OrthobenchError as error:
            # Split at the last colon, because orthobench's errors end with the fix.
            problem, _, fix = str(error).rpartition(": ")
            yield DoctorFinding(section, "examination", problem, Level.ACTION, fix)
        except Exception as error:
            fix = "report this error with the output of `orthobench -v doctor`"
            yield DoctorFinding(section, "examination", f"failed: {one_line(error)}", Level.ACTION, fix)
