"""What would have fitted into an accelerator's memory, when a run did not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import torch

from orthobench.probe import Probe, Subject
from orthobench.task import Batch, Split
from orthobench.training.batches import as_stream
from orthobench.training.trainer import Trainer


def explain_memory(trainer: Trainer, failure: str) -> str:
    """What did not fit, and the largest batch that does of a half, a quarter, ... of this one: they are tried.

    The trainer is of no use afterwards.
    """
    what = f"out of GPU memory at iteration {trainer.iteration}"
    probe = trainer.probes.get(trainer.doing.removeprefix("probe "))
    use: Callable[[Batch], None]
    if trainer.doing == "test":
        setting, split, use = "evaluation_batch_size", trainer.task.test, partial(_try_test, trainer)
    elif trainer.doing == "train" or probe is not None:
        setting, split, use = "batch_size", trainer.task.train, partial(_try_step, trainer, probe)
    else:
        return f"{what} ({trainer.doing}); a batch size that would do is unknown: {failure}"
    trainer.model.zero_grad()
    trainer.state = None
    tried: int = getattr(trainer.training, setting)
    size = (tried if as_stream(trainer.task, split) else min(tried, len(split))) // 2
    while size and not _fits(trainer, use, split, size):
        size //= 2
    if size:
        return f"{what} with {setting}={tried}; {size} fits, beside what else is on the GPU now"
    return f"{what} with {setting}={tried}, and a batch of 1 does not fit either: {failure}"


def _fits(trainer: Trainer, use: Callable[[Batch], None], split: Split, size: int) -> bool:
    """Whether this use of a split's first sequences, of so many, goes through."""
    gc.collect()
    if trainer.device.type == "cuda":
        torch.cuda.empty_cache()
    stream = as_stream(trainer.task, split)
    try:
        use(stream.piece(0, size) if stream else split.batch(torch.arange(size, device=trainer.device)))
    except torch.OutOfMemoryError:
        return False
    finally:
        trainer.model.zero_grad()
    return True


@torch.no_grad()
def _try_test(trainer: Trainer, batch: Batch) -> None:
    trainer.model(batch.inputs)


def _try_step(trainer: Trainer, probe: Probe | None, batch: Batch) -> None:
    outputs, _ = trainer.model(batch.inputs)
    trainer.task.loss(outputs, batch.targets).backward()
    with torch.no_grad():
        trainer.step()
    if probe is not None:
        probe(Subject(trainer.model, trainer.task, batch))
