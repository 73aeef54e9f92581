"""A diverged run is a result with its iteration; a run out of memory names the setting that may help."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.configs import with_classes

from orthobench.errors import UsageError
from orthobench.models.rnn import RNN
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.store import Status, open_store
from orthobench.tasks.adding import Adding
from orthobench.training.lifecycle import OutOfMemory, train
from orthobench.training.loop import Interrupted

CPU = torch.device("cpu")


def carry_out(config: RunConfig, folder: Path, on_divergence="stop", should_stop=lambda: False):
    """The run's record and its test metrics by iteration."""
    folder.mkdir(exist_ok=True)
    with open_store(str(folder / "r.db"), create=True) as store:
        options = RunOptions(device="cpu", on_divergence=on_divergence, checkpoint_every=0)
        run = train(config, store, options, should_stop=should_stop)
        return run, [(m.name, m.iteration, m.value) for m in store.metrics([run.id], "test")]


def adding(tiny, **settings) -> RunConfig:
    return resolve(Catalog(), "adding", "rnn", tiny | settings)


def test_limit_is_in_the_key_if_it_was_set(tiny):
    plain = adding(tiny)
    assert plain.training.diverged_above == 1e4
    assert "diverged_above" not in plain.spec.training
    keys = {adding(tiny, diverged_above=value).spec.key for value in ("10000", "100", "none")}
    assert len(keys) == 3
    assert plain.spec.key in keys


def test_loss_above_the_limit_ends_a_run_except_at_its_start(tmp_path, tiny):
    """An RNN's mean squared error stays above a thousandth of the baseline, from the start to the end."""
    run, rows = carry_out(adding(tiny, diverged_above="1e-3"), tmp_path)
    assert (run.status, run.iterations) == (Status.DIVERGED, 2)
    assert [iteration for _, iteration, _ in rows] == [0, 2]
    message = (
        f"mse {rows[-1][2]:.4g} at iteration 2 (epoch 0.5), above 0.001 times 0.1667, the expected loss of a guess"
    )
    assert run.message == message
    assert run.final_value == rows[-1][2]


def test_tolerated_divergence_gives_the_numbers_of_a_run_without_limit(tmp_path, tiny):
    limited = adding(tiny, diverged_above="1e-3")
    _, unlimited = carry_out(adding(tiny, diverged_above="none"), tmp_path / "unlimited")
    carry_out(limited, tmp_path / "asked again")
    run, rows = carry_out(limited, tmp_path / "asked again", "continue")
    assert rows == unlimited
    assert (run.status, run.iterations) == (Status.DIVERGED, 12)  # judged by where it ended
    assert carry_out(limited, tmp_path / "at once", "continue")[1] == unlimited
    assert not list((tmp_path / "at once" / "r.db.checkpoints").glob("*/*"))


def test_tolerated_divergence_can_be_interrupted_and_resumed(tmp_path, tiny):
    limited = adding(tiny, diverged_above="1e-3")
    _, unlimited = carry_out(adding(tiny, diverged_above="none"), tmp_path / "unlimited")
    stop_flags = iter([False] * 5 + [True])
    with pytest.raises(Interrupted):
        carry_out(limited, tmp_path / "cut", "continue", lambda: next(stop_flags))
    assert carry_out(limited, tmp_path / "cut", "continue")[1] == unlimited


def spiking(first: int, last: int, factor: float):
    """An RNN whose answers in the tests from the `first` to the `last`, counted from 0, are this many times too big."""

    class Spiking(RNN):
        tests = -1

        def eval(self):
            Spiking.tests += 1
            return super().eval()

        def forward(self, *arguments, **options):
            outputs, state = super().forward(*arguments, **options)
            spikes = not self.training and first <= Spiking.tests <= last
            return (factor * outputs if spikes else outputs), state

    return Spiking


@pytest.mark.parametrize("factor", [1e6, torch.inf])
def test_passing_spike_does_not_end_a_tolerant_run(factor, tmp_path, tiny):
    def config():
        return with_classes(adding(tiny), model_class=spiking(4, 5, factor), probes={})

    ended, _ = carry_out(config(), tmp_path / "stop")
    assert (ended.status, ended.iterations) == (Status.DIVERGED, 8)
    run, rows = carry_out(config(), tmp_path / "continue", "continue")
    assert (run.status, run.iterations, run.message) == (Status.FINISHED, 12, None)
    _, plain = carry_out(with_classes(adding(tiny), probes={}), tmp_path / "plain")
    assert rows[-1] == plain[-1]


@pytest.mark.parametrize("on_divergence", ["stop", "continue"])
def test_non_finite_weights_end_a_run_in_both_modes(on_divergence, tmp_path, tiny):
    wild = resolve(Catalog(), "adding", "rnn", tiny | {"learning_rate": "1e30", "activation": "relu"})
    run, _ = carry_out(wild, tmp_path, on_divergence)
    assert run.status == Status.DIVERGED
    assert run.message == f"not finite at iteration {run.iterations} (epoch {run.iterations / 4:.4g})"
    assert run.iterations < 12
    assert not list((tmp_path / "r.db.checkpoints").glob("*/*"))


@pytest.mark.usefixtures("small_data")
def test_loss_is_judged_if_accuracy_is_the_metric(tmp_path, tiny):
    overrides = {"train_size": "20", "validation_size": "10", "test_size": "10", "batch_size": "10", "hidden_size": "4"}
    overrides["diverged_above"] = "1e-3"
    run, _ = carry_out(resolve(Catalog(), "mnist", "rnn", overrides), tmp_path)
    assert run.status == Status.DIVERGED
    assert run.message.startswith("cross_entropy ")
    assert run.message.endswith(" at iteration 2 (epoch 1), above 0.001 times 2.303, the expected loss of a guess")


def hungry(training: int, testing: int):
    """An RNN on a device whose memory limits the sequences of a batch."""

    class Hungry(RNN):
        def states(self, inputs, state, trace):
            if inputs.shape[1] > (training if torch.is_grad_enabled() else testing):
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")
            return super().states(inputs, state, trace)

    return Hungry


@pytest.mark.parametrize(
    ("training", "testing", "message"),
    [
        (
            5,
            20,
            "iteration 0 with batch_size=10: choose a smaller one (CUDA out of memory. Tried to allocate 2.00 GiB.)",
        ),
        (10, 7, "iteration 0 with evaluation_batch_size=15: choose a smaller one"),
    ],
)
def test_out_of_memory_names_the_batch_size(training, testing, message, tmp_path, tiny):
    greedy = with_classes(adding(tiny, evaluation_batch_size="15"), model_class=hungry(training, testing), probes={})
    with pytest.raises(OutOfMemory) as error:
        carry_out(greedy, tmp_path)
    assert str(error.value).startswith(f"out of GPU memory at {message}")
    with open_store(str(tmp_path / "r.db")) as store:
        (run,) = store.runs()
    assert (run.status, run.message) == (Status.FAILED, str(error.value))
    assert carry_out(adding(tiny, evaluation_batch_size="15"), tmp_path)[0].status == Status.FINISHED


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate"), None])
def test_out_of_memory_on_the_cpu_is_recognised(error, tmp_path, tiny):
    class Hungry(RNN):
        def states(self, inputs, state, trace):
            if torch.is_grad_enabled():
                if error is not None:
                    raise error
                torch.empty(2**60)  # torch's own error
            return super().states(inputs, state, trace)

    with pytest.raises(OutOfMemory, match=r"^out of memory at iteration 0 with batch_size=10: choose a smaller one"):
        carry_out(with_classes(adding(tiny), model_class=Hungry, probes={}), tmp_path)
    with open_store(str(tmp_path / "r.db")) as store:
        (run,) = store.runs()
    assert (run.status, run.message.splitlines()) == (Status.FAILED, [run.message])


@pytest.mark.parametrize("model", ["rnn", "scornn", "lstm", "exprnn"])
def test_size_beyond_the_memory_is_refused_before_allocation(model, tmp_path, tiny):
    config = resolve(Catalog(), "adding", model, tiny | {"hidden_size": "1000000000"})
    with pytest.raises(UsageError, match=r"^hidden_size=1000000000: the parameters alone need .* GiB, and this"):
        carry_out(config, tmp_path)


@pytest.mark.parametrize("steps", [2**58, 2**62])
def test_data_beyond_the_memory_are_refused(steps, tmp_path, tiny):
    with pytest.raises(UsageError, match=r"^out of memory while building adding and rnn: choose smaller sizes"):
        carry_out(adding(tiny, sequence_length=str(steps)), tmp_path)


def test_more_iterations_than_a_database_holds_are_refused(tmp_path, tiny):
    with pytest.raises(UsageError, match=r"iterations are too many: choose fewer epochs$"):
        carry_out(adding(tiny, epochs=str(2**62)), tmp_path)


def test_out_of_memory_in_a_probe_names_the_batch_size(tmp_path, tiny):
    greedy = with_classes(adding(tiny), model_class=hungry(5, 20))
    with pytest.raises(OutOfMemory, match="iteration 0 with batch_size=10: choose a smaller one"):
        carry_out(greedy, tmp_path)


def test_no_batch_size_is_named_if_none_is_to_blame(tmp_path, tiny):
    class Large(Adding):
        def final_metrics(self, model, report):
            raise torch.OutOfMemoryError("CUDA out of memory.")

    message = r"iteration 12 \(final metrics\): CUDA out of memory."
    with pytest.raises(OutOfMemory, match=message):
        carry_out(with_classes(adding(tiny), task_class=Large), tmp_path)


@pytest.mark.skipif(torch.get_num_threads() < 2, reason="needs two cores")
def test_resumed_run_keeps_its_number_of_threads(tmp_path, tiny):
    """For another number rounds some sums differently."""
    config = adding(tiny)
    torch.set_num_threads(2)
    stop_flags = iter([False] * 5 + [True])
    with pytest.raises(Interrupted):
        carry_out(config, tmp_path, should_stop=lambda: next(stop_flags))
    torch.set_num_threads(1)
    run, _ = carry_out(config, tmp_path)
    assert torch.get_num_threads() == 1
    assert run.environment.facts["threads"] == 2
