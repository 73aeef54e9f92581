"""Diagnose a lack of memory: find a batch size that fits."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import torch

from orthobench.errors import lacks_memory
from orthobench.probe import Probe, ProbeContext
from orthobench.task import Batch, Split, as_stream, loss_of
from orthobench.training.loop import TrainingLoop
from orthobench.training.trainer import Trainer


def explain_memory(loop: TrainingLoop, kind: str, failure: str) -> str:
    """Return what did not fit, and the largest of a half, a quarter, ... of the batch size that does.

    Each size is tried in turn, and the loop's trainer cannot be used afterwards.

    Args:
        kind: "GPU memory", or "memory" for the CPU.
        failure: the first line of the error.
    """
    trainer, phase = loop.trainer, loop.trainer.timer.phase
    what = f"out of {kind} at iteration {trainer.state.iteration}"
    probe = loop.evaluator.probes.get(phase.removeprefix("probe "))
    use: Callable[[Batch], None]
    if phase == "test":
        setting, split, use = "evaluation_batch_size", trainer.task.test, partial(_try_evaluation, trainer)
    elif phase == "train" or probe is not None:
        setting, split, use = "batch_size", trainer.task.train, partial(_try_step, trainer, probe)
    else:
        return f"{what} ({phase}); no batch size is known to fit: {failure}"
    trainer.model.zero_grad()
    # Dropped because it has the batch size that did not fit.
    trainer.state.carried = None
    tried: int = getattr(trainer.training, setting)
    size = (tried if as_stream(trainer.task, split) else min(tried, len(split))) // 2
    while size and not _fits(trainer, use, split, size):
        size //= 2
    if size:
        return f"{what} with {setting}={tried}; {size} fits in the memory that other processes leave"
    return f"{what} with {setting}={tried}, and a batch of 1 does not fit either: {failure}"


def _fits(trainer: Trainer, use: Callable[[Batch], None], split: Split, size: int) -> bool:
    """Return whether `use` succeeds on the split's first `size` sequences."""
    # Collected because the traceback of the failed try may be part of a cycle that still holds its tensors.
    gc.collect()
    if trainer.device.type == "cuda":
        torch.cuda.empty_cache()
    stream = as_stream(trainer.task, split)
    try:
        use(stream.piece(0, size) if stream else Batch.of(split, torch.arange(size, device=trainer.device)))
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        return False
    finally:
        trainer.model.zero_grad()
    return True


@torch.no_grad()
def _try_evaluation(trainer: Trainer, batch: Batch) -> None:
    batch.through(trainer.model)


def _try_step(trainer: Trainer, probe: Probe | None, batch: Batch) -> None:
    outputs, _ = batch.through(trainer.model)
    loss_of(trainer.task, outputs, batch.targets).backward()
    with torch.no_grad():
        trainer.step()
    if probe is not None:
        probe(ProbeContext(trainer.model, trainer.task, batch))
