"""A recorded training step gives the numbers of the eager one, with a graph of torch's operations in CUDA's place.

Like a CUDA graph, `Tape` repeats operations on the tensors of the recording: a number that Python computed in between
stays as it was, and a read of a tensor's value is refused.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.lengths import Positions, RunningSums, Sums
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from orthobench.api import RunOptions, run
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.recurrence import plain_tensors, use_backend
from orthobench.recurrence.cpu import native
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.tasks.adding import Adding
from orthobench.tasks.ptb import PTB
from orthobench.training.graph import WARM_UP, StepGraph
from orthobench.training.optimizers import set_capturable
from orthobench.training.trainer import Trainer

CPU = torch.device("cpu")
READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)


class Tape(TorchDispatchMode):
    """Operations with the tensors that they had, to be run again in place."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise RuntimeError("operation not permitted when stream is capturing")
        results = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, results))
        return results

    def replay(self) -> None:
        with torch._C._AutoDispatchBelowAutograd():
            for func, args, kwargs, results in self.operations:
                again = func(*args, **kwargs)
                for result, new in zip(tree_leaves(results), tree_leaves(again), strict=True):
                    if isinstance(result, Tensor) and result.data_ptr() != new.data_ptr():
                        result.copy_(new)


class TapeRecorder:
    """Records a step while it runs, so the first replay, which follows at once, does nothing."""

    def __init__(self) -> None:
        self.warmed = self.recorded = self.replayed = 0

    def warm_up(self, step: Callable[[], Any]) -> Any:
        self.warmed += 1
        return step()

    def record(self, step: Callable[[], Any]) -> Any:
        self.recorded += 1
        tape = Tape()
        with torch.autograd.set_multithreading_enabled(False), tape:
            results = step()

        before = self.replayed

        def replay() -> None:
            self.replayed += 1
            if self.replayed > before + 1:
                tape.replay()

        return replay, results


@pytest.fixture(autouse=True)
def _as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's optimisers keep their counters in tensors; the recurrence runs in operations that a tape sees.

    Matrices are computed as if there were no tape, because a CUDA graph is not a mode of torch.
    """
    for module in ("adam", "rmsprop"):
        implementation = importlib.import_module(f"torch.optim.{module}")
        monkeypatch.setattr(implementation, "_get_capturable_supported_devices", lambda *_, **__: ["cpu"])
    monkeypatch.setattr(plain_tensors, "count_modes", lambda: 0)
    monkeypatch.setattr(native, "unusable", lambda name: "the tape sees no C kernel")
    with use_backend("reference"):
        yield


def make(task: str, model: str, settings: dict[str, str]) -> Trainer:
    config = resolve(Catalog(()), task, model, settings)
    return trainer_of({"adding": Adding, "ptb": PTB}[task], config)


def trainer_of(task_class: Any, config: RunConfig) -> Trainer:
    trainer = Trainer(config, task_class(config.task_settings, 0, CPU), CPU)
    for optimizer in trainer.optimizers:
        set_capturable(optimizer, True)
    return trainer


def graphed(trainer: Trainer, required: bool = False) -> TapeRecorder:
    recorder = TapeRecorder()
    trainer.graph = StepGraph(trainer._train_on, recorder, required)
    return recorder


def advance(trainer: Trainer, iterations: int) -> list[float]:
    """The loss of each iteration."""
    losses = []
    for _ in range(iterations):
        trainer.advance()
        losses.append(float(trainer.state.loss_sum))
        trainer.take_loss()
    return losses


def assert_same(trainer: Trainer, other: Trainer) -> None:
    for (name, value), expected in zip(
        trainer.model.state_dict().items(), other.model.state_dict().values(), strict=True
    ):
        assert torch.equal(value, expected), name


FALLING = {"epochs": "3", "learning_rate_decay": "0.5", "clip_norm": "0.5", "clip_value": "0.4"}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("scornn", {}),
        ("scornn", {"optimizer": "adagrad_tf1", "recurrent_optimizer": "rmsprop_theano"}),
        ("lstm", {"optimizer": "adam"}),
        ("rnn", {"optimizer": "adamw", "weight_decay": "0.5", "decay_exempt": "vectors"}),
        ("rnn", {"optimizer": "adam_tf1", "warmup": "3", "schedule": "cosine", "final_rate": "1e-5"}),
        ("gru", {"optimizer": "rmsprop_torch"}),
        ("rnn", {"optimizer": "sgd_momentum", "activation": "tanh"}),
        ("soft_orthogonal", {}),
        ("full_urnn", {}),
        ("scurnn", {}),
        ("ornn", {}),
        ("lru", {}),
    ],
)
def test_graph_gives_the_numbers_of_the_eager_step(tiny, model, settings):
    settings = {**tiny, **FALLING, "sequence_length": "5", **settings}
    eager, trainer = make("adding", model, settings), make("adding", model, settings)
    recorder = graphed(trainer)
    iterations = eager.total_iterations
    assert iterations == 3 * eager.iterations_per_epoch > WARM_UP + 4
    assert advance(trainer, iterations) == advance(eager, iterations)
    assert_same(trainer, eager)
    assert (recorder.warmed, recorder.recorded, recorder.replayed) == (WARM_UP, 1, iterations - WARM_UP)


def test_plateau_lowers_the_learning_rate_of_a_graph(tiny):
    eager, trainer = make("adding", "rnn", tiny), make("adding", "rnn", tiny)
    graphed(trainer)
    for either in (eager, trainer):
        advance(either, WARM_UP + 2)
        for group in either.groups:
            assert group.learning_rate
        object.__setattr__(either.training, "plateau_decay", 0.5)
        either.state.plateaus = 2
        advance(either, 3)
    assert_same(trainer, eager)


@pytest.fixture
def text(tmp_path) -> dict[str, str]:
    (tmp_path / "text.txt").write_text("".join("abcdefgh "[(k * k + k // 5) % 9] for k in range(700)))
    sizes = {"unroll_length": "5", "hidden_size": "6", "batch_size": "8", "evaluation_batch_size": "3", "epochs": "3"}
    return {"text": str(tmp_path / "text.txt"), **sizes}


def test_carried_state_passes_through_static_tensors(text):
    """The first batch of an epoch has no carried state, and runs eagerly."""
    eager, trainer = make("ptb", "lstm", text), make("ptb", "lstm", text)
    recorder = graphed(trainer)
    iterations, per_epoch = eager.total_iterations, eager.iterations_per_epoch
    assert per_epoch > WARM_UP + 3
    assert advance(trainer, iterations) == advance(eager, iterations)
    assert_same(trainer, eager)
    assert recorder.recorded == 1
    assert recorder.replayed == iterations - 2 * 3 - WARM_UP  # the last piece of an epoch is shorter
    for carried, expected in zip(trainer.state.carried, eager.state.carried, strict=True):
        assert torch.equal(carried, expected)


def test_restored_run_records_again(tiny):
    settings = {**tiny, **FALLING}
    eager, trainer = make("adding", "lstm", settings), make("adding", "lstm", settings)
    recorder = graphed(trainer)
    advance(trainer, 6)
    saved = trainer.checkpoint()
    resumed = make("adding", "lstm", settings)
    graphed(resumed)
    advance(resumed, 5)
    for optimizer in resumed.optimizers:
        set_capturable(optimizer, False)  # as `restore` leaves it on the CPU
    resumed.restore(saved)
    for optimizer in resumed.optimizers:
        set_capturable(optimizer, True)
    again = resumed.graph.recorder
    advance(resumed, 6)
    advance(eager, 12)
    assert_same(resumed, eager)
    assert recorder.recorded == 1
    assert again.recorded == 2


def test_step_that_reads_a_value_stays_eager_with_a_warning(tiny, caplog):
    """EXPRNN on the CPU reads the norm of A to count its squarings."""
    eager, trainer = make("adding", "exprnn", tiny), make("adding", "exprnn", tiny)
    recorder = graphed(trainer)
    with caplog.at_level(logging.WARNING, logger="orthobench"):
        assert advance(trainer, 8) == advance(eager, 8)
    assert_same(trainer, eager)
    assert (recorder.recorded, recorder.replayed) == (1, 0)
    assert [record.message for record in caplog.records] == [
        "the training step runs without a CUDA graph: RuntimeError: operation not permitted when stream is capturing"
    ]


def test_impossible_required_graph_is_refused_in_one_line(tiny):
    trainer = make("adding", "exprnn", tiny)
    graphed(trainer, required=True)
    with pytest.raises(UsageError, match=r"`cuda_graph='on'`: the step cannot be recorded: .*use `cuda_graph='auto'`"):
        advance(trainer, WARM_UP + 1)


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_no_graph_is_recorded_on_the_cpu(tiny, mode):
    trainer = make("adding", "rnn", tiny)
    trainer.use_graph(mode)
    assert trainer.graph is None


def test_graph_on_the_cpu_is_refused(tiny):
    with pytest.raises(UsageError, match="not on a CUDA device; use `cuda_graph='auto'`"):
        make("adding", "rnn", tiny).use_graph("on")


def test_command_refuses_a_graph_on_the_cpu_before_storing(tmp_path):
    options = RunOptions(device="cpu", cuda_graph="on")
    with pytest.raises(UsageError, match="not on a CUDA device"):
        run("adding", "rnn", preset="quick", db=str(tmp_path / "results.db"), options=options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("task_class", [Sums, Positions, RunningSums])
@pytest.mark.parametrize("more", [{}, {"embedding_size": "4"}], ids=["one_hot", "embedding"])
def test_lengths_positions_and_symbols_are_inputs_of_the_graph(tiny, task_class, more):
    padded = type("Padded", (task_class,), {"trims": False})
    config = resolve(Catalog(()), "adding", "rnn", {**tiny, **FALLING, **more})
    eager, trainer = trainer_of(padded, config), trainer_of(padded, config)
    recorder = graphed(trainer, required=True)
    iterations = eager.total_iterations
    assert advance(trainer, iterations) == advance(eager, iterations)
    assert recorder.recorded == 1
    assert recorder.replayed == iterations - WARM_UP
    assert_same(trainer, eager)
