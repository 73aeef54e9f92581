"""What is claimed of a figure, checked on its small version."""

from __future__ import annotations

from collections.abc import Sequence

from orthobench.papers import Artifact
from orthobench.report.claims import Finding, check_panels, check_runs
from orthobench.report.collect import collect
from orthobench.store import Store
from orthobench.studies import find


def check_small(store: Store, artifact: Artifact, keys: Sequence[str]) -> list[Finding]:
    """The claims of the small version, whose runs have these keys; of a study that computes, on what it gives."""
    assert artifact.small is not None
    claimed = artifact.model_copy(update={"claims": artifact.small.claims or artifact.claims})
    study = find(artifact.study) if artifact.study else None
    if study and study.compute:
        return check_panels(claimed, study.compute()["panels"])
    variants = [variant for condition in collect(store, keys=keys) for variant in condition.variants]
    return check_runs(claimed, variants)
