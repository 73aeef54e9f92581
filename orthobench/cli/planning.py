"""What a sweep's runs will take, as `--dry-run` and `--budget` ask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import typer

from orthobench.store import Store
from orthobench.sweep.estimate import Estimate, Estimator, probe
from orthobench.sweep.job import Job
from orthobench.sweep.plan import PlannedRun
from orthobench.train import BackendName, Pace


def estimate(
    planned: Sequence[PlannedRun],
    store: Store | None,
    device: torch.device,
    backend: BackendName,
    plugins: Sequence[Path],
    data_folder: Path | None,
    probing: bool,
) -> dict[str, Estimate]:
    """What each run that is still wanted will take, by key; runs like none before are tried for a few steps."""

    def tried(one: PlannedRun) -> Pace:
        typer.echo(f"trying a few steps of {one.label}", err=True)
        return probe(
            Job(
                one.resolved.spec,
                one.label,
                database="",
                checkpoints="",
                plugins=tuple(str(file) for file in plugins),
                data_folder=None if data_folder is None else str(data_folder),
                device="cuda" if device.type == "cuda" else "cpu",
                backend=backend,
            )
        )

    estimator = Estimator(store, device, tried if probing else None)
    found = {one.resolved.spec.key: estimator.of(one) for one in planned}
    return {key: estimate for key, estimate in found.items() if estimate is not None}
