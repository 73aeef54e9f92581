"""Tasks whose targets are tokens at some steps `[A, B]`, some of which do not count: loss and scores."""

from __future__ import annotations

from torch import Tensor, nn

from orthobench.task import Task

IGNORED = -100
"""Target of a step without an answer, which torch's cross-entropy ignores."""


def entropy(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Return the cross-entropy of the answers in nats, for outputs `[A, B, p]` and targets `[A, B]`."""
    return nn.functional.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction=reduction
    )


def token_scores(outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
    """Return the number of correct answers, the sum of their cross-entropy, and the number of answers of each."""
    count = float((targets != IGNORED).sum())
    right = (outputs.argmax(-1) == targets).sum()
    return {"accuracy": (right, count), "cross_entropy": (entropy(outputs, targets, "sum"), count)}


class AnswerTask(Task):
    """The base class: answers count alike, and the loss is the mean cross-entropy of one."""

    loss_metric = "cross_entropy"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return entropy(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return the share of correct answers, and the cross-entropy of one."""
        return token_scores(outputs, targets)
