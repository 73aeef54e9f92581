"""Plant faults into a copy of the code, one at a time, and list those that the tests or the gate do not catch.

    python tests/gate/planted_faults.py [--only WORD] [--skip tests] [--data-dir FOLDER]     or: make faults

Each fault names the tests that should fail, and the runs of checks/baseline.toml whose check should not pass. Faults in
the use of real data need the data sets. Without a fault both must pass, which the program checks first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.checkout import ROOT, copy_checkout, path_in_copy

COPY = ROOT / "build" / "planted"


@dataclass(frozen=True)
class Fault:
    """A text of a file and its replacement, the tests that should fail, and the runs that should not pass.

    There are no runs where none of the baseline could notice: no built-in task reads it, or it is the gate's own.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    runs: tuple[str, ...]


def fault(name: str, file: str, old: str, new: str, tests: str, runs: str) -> Fault:
    return Fault(name, file, old, new, tuple(f"tests/{test}" for test in tests.split()), tuple(runs.split()))


TRAINER, BATCHES = "orthobench/training/trainer.py", "orthobench/task/batches.py"
EVALUATOR, OPTIMIZERS = "orthobench/training/evaluator.py", "orthobench/training/optimizers.py"
RATES = "orthobench/training/learning_rates.py"
RANDOMNESS = "training/test_randomness.py"
OPERATIONS = "orthobench/recurrence/ops"
CELLS = "orthobench/recurrence/cpu/generated"

FAULTS = (
    # Randomness
    fault(
        "model seed ignored",
        TRAINER,
        "seeded_generator(spec.seed, ",
        "seeded_generator(0, ",
        RANDOMNESS,
        "adding/exact",
    ),
    fault(
        "second word of a purpose ignored",
        "orthobench/task/seeds.py",
        "(seed, *purpose)))",
        "(seed, *purpose[:1])))",
        RANDOMNESS,
        "adding/exact",
    ),
    fault("never shuffled", BATCHES, "if not self.shuffle:", "if True:", RANDOMNESS, "adding/exact"),
    fault("one order for all epochs", BATCHES, '"order", epoch)', '"order", 0)', RANDOMNESS, "adding/exact"),
    fault("one order for all seeds", BATCHES, "(self.seed, ", "(0, ", RANDOMNESS, "adding/exact"),
    fault(
        "data seed ignored",
        "tasks/adding.py",
        '(seed, "adding", part)',
        '(0, "adding", part)',
        RANDOMNESS,
        "adding/exact",
    ),
    fault(
        "test data are training data",
        "tasks/copying.py",
        '(seed, "copying", part)',
        '(seed, "copying", "train")',
        RANDOMNESS,
        "copying/exact",
    ),
    # Training
    fault(
        "norm not clipped",
        TRAINER,
        "if self.training.clip_norm is not None:",
        "if False:",
        "training/test_transcription.py",
        "adding/exact",
    ),
    fault(
        "values not clipped",
        TRAINER,
        "if self.training.clip_value is not None:",
        "if False:",
        "training/test_transcription.py",
        "copying/exact",
    ),
    fault(
        "learning rates do not decay",
        TRAINER,
        "training.learning_rate_decay**decays * ",
        "",
        "training/test_lifecycle.py::test_learning_rates_decay_with_the_epochs",
        "adding/exact",
    ),
    fault(
        "decay in every epoch",
        TRAINER,
        " // training.decay_every",
        "",
        "training/test_lifecycle.py::test_learning_rates_decay_with_the_epochs",
        "copying/exact",
    ),
    fault(
        "no decay on a plateau",
        TRAINER,
        " * training.plateau_decay**self.state.plateaus",
        "",
        "training/test_trainer.py",
        "mnist/exact",
    ),
    fault(
        "weight decay off",
        TRAINER,
        "if group.weight_decay and group.optimizer",
        "if False and group.optimizer",
        "training/test_lifecycle.py::test_penalty_and_weight_decay_reach_the_gradient",
        "copying/exact",
    ),
    fault(
        "weight decay twice",
        TRAINER,
        "alpha=group.weight_decay",
        "alpha=2 * group.weight_decay",
        "training/test_lifecycle.py::test_penalty_and_weight_decay_reach_the_gradient",
        "copying/exact",
    ),
    fault(
        "penalty ignored",
        TRAINER,
        "(loss if penalty is None else loss + penalty)",
        "loss",
        "training/test_lifecycle.py::test_penalty_and_weight_decay_reach_the_gradient",
        "copying/exact",
    ),
    fault(
        "one learning rate for all groups",
        TRAINER,
        "learning_rate(group.learning_rate, ",
        "learning_rate(self.groups[0].learning_rate, ",
        "training/test_trainer.py",
        "copying/exact",
    ),
    fault(
        "constraint not restored",
        TRAINER,
        "self.model.after_step()",
        "pass",
        "training/test_trainer.py",
        "mnist/exact",
    ),
    fault(
        "gradients add up", TRAINER, "parameter.grad = None", "pass", "training/test_transcription.py", "adding/exact"
    ),
    fault(
        "state not carried on",
        TRAINER,
        "() if starts_epoch or state.carried is None else state.carried",
        "()",
        "training/test_carried_state.py",
        "ptb/exact",
    ),
    fault(
        "last batch of an epoch dropped",
        BATCHES,
        "len(task.train) // self.size",
        "len(task.train) // self.size - 1",
        "training/test_lifecycle.py::test_everything_is_logged",
        "adding/exact",
    ),
    # Evaluation
    fault(
        "validation on test data",
        EVALUATOR,
        "self.measure(self.task.validation)",
        "self.measure(self.task.test)",
        "training/test_validation.py",
        "mnist/exact",
    ),
    fault(
        "test on training data",
        EVALUATOR,
        "self.totals(self.task.test, ",
        "self.totals(self.task.train, ",
        "training/test_transcription.py",
        "adding/exact",
    ),
    fault(
        "incomplete batch not tested",
        EVALUATOR,
        ".split(size))",
        ".split(size)[: max(1, len(split) // size)])",
        "training/test_trainer.py",
        "adding/exact",
    ),
    fault(
        "state kept between tested sequences",
        EVALUATOR,
        "final_state if self.task.carries_state else None",
        "None",
        "training/test_carried_state.py",
        "ptb/exact",
    ),
    fault(
        "divergence not noticed",
        EVALUATOR,
        "if metrics[name] <= limit * baseline:",
        "if True:",
        "training/test_divergence.py",
        "adding/exact",
    ),
    # Optimisers
    fault(
        "Adam without the root of the bias correction",
        OPTIMIZERS,
        'group["lr"] * (1 - beta2**step) ** 0.5',
        'group["lr"] * (1 - beta2**step)',
        "training/test_optimizers.py",
        "adding/exact",
    ),
    fault(
        "RMSProp with the complement of its decay",
        OPTIMIZERS,
        '"second": 1 - group["decay"]',
        '"second": group["decay"]',
        "training/test_optimizers.py",
        "copying/exact",
    ),
    fault(
        "Cayley step ascends",
        OPTIMIZERS,
        "identity + half, w - half @ w",
        "identity - half, w + half @ w",
        "training/test_optimizers.py",
        "cifar10/exact",
    ),
    fault(
        "second moment of TensorFlow 1's Adam with the first's decay",
        OPTIMIZERS,
        '"second": 1 - beta2, "outside"',
        '"second": 1 - beta1, "outside"',
        "training/test_optimizers.py",
        "adding/exact",
    ),
    fault(
        "Theano's RMSProp divides 0 by 0",
        "orthobench/recurrence/cpu/optimiser.c",
        "/ select_lanes(root == 0, splat(INFINITY), root)",
        "/ root",
        "training/test_optimizers.py",
        "copying/exact-urnn",
    ),
    fault(
        "exempt parameters keep the first rate",
        OPTIMIZERS,
        "for group in optimizer.param_groups:\n        if isinstance",
        "for group in optimizer.param_groups[:1]:\n        if isinstance",
        "training/test_schedule.py",
        "adding/exact-adamw",
    ),
    fault(
        "vectors decay",
        TRAINER,
        'settings.decay_exempt == "vectors" and parameter.dim() < 2',
        "False",
        "training/test_schedule.py",
        "adding/exact-adamw",
    ),
    # Schedules
    fault(
        "warm-up a step early",
        RATES,
        "rate * iteration / warmup",
        "rate * (iteration + 1) / warmup",
        "training/test_schedule.py",
        "adding/exact-adamw formal_language/exact",
    ),
    fault(
        "warm-up rounded up",
        RATES,
        "int(training.warmup * total if",
        "math.ceil(training.warmup * total if",
        "training/test_schedule.py",
        "adding/exact-adamw",
    ),
    fault(
        "cosine from the start of the warm-up",
        RATES,
        "share = (iteration - warmup) / (total - warmup)",
        "share = iteration / total",
        "training/test_schedule.py",
        "adding/exact-adamw",
    ),
    # Tasks
    fault(
        "gaps of recall by equal chances",
        "tasks/mqar.py",
        "** (self.settings.power - 1)",
        "** 0",
        "tasks/test_mqar.py",
        "mqar/exact",
    ),
    fault(
        "group's products in the other order",
        "tasks/group_word.py",
        "self.table[elements[:-shift] * self.order + elements[shift:]]",
        "self.table[elements[shift:] * self.order + elements[:-shift]]",
        "tasks/test_group_word.py",
        "group_word/exact",
    ),
    fault(
        "identity before the other tokens",
        "tasks/_groups.py",
        "[*self.generators, *others, 0]",
        "[*self.generators, 0, *others]",
        "tasks/test_group_word.py",
        "group_word/exact",
    ),
    fault(
        "padding counts as the sequence's end",
        "orthobench/sequences.py",
        "steps_at(outputs, (lengths - 1).unsqueeze(0)).squeeze(0)",
        "outputs[-1]",
        "models/test_readouts.py",
        "formal_language/exact xor_stream/exact",
    ),
    fault(
        "padding counts for the loss",
        "tasks/group_word.py",
        ".masked_fill(padded, IGNORED)",
        "",
        "tasks/test_group_word.py",
        "group_word/exact",
    ),
    fault(
        "answers a step late",
        "orthobench/sequences.py",
        "outputs.gather(0, positions.unsqueeze(-1)",
        "outputs.gather(0, (positions - 1).clamp(0).unsqueeze(-1)",
        "models/test_readouts.py",
        "mqar/exact formal_language/exact",
    ),
    fault(
        "delay shorter by one",
        "tasks/copying.py",
        "-COPIED - 1]",
        "-COPIED - 2]",
        "tasks/test_copying.py",
        "copying/exact",
    ),
    fault(
        "markers of the wrong halves",
        "tasks/adding.py",
        "(length - 1) // 2",
        "length // 2",
        "tasks/test_adding.py",
        "adding/exact",
    ),
    fault(
        "pixels not permuted",
        "tasks/mnist.py",
        "if settings.permuted else",
        "if False else",
        "tasks/test_mnist.py",
        "mnist/exact",
    ),
    fault(
        "validation images are trained on",
        "tasks/_image.py",
        "images[first:past], labels[first:past]",
        "images[: past - first], labels[: past - first]",
        "tasks/test_mnist.py",
        "mnist/exact",
    ),
    fault(
        "mask shifted by a step",
        "tasks/timit.py",
        "self.time[:-1] < lengths",
        "self.time[1:] < lengths",
        "tasks/test_timit.py",
        "timit/exact",
    ),
    fault(
        "character asked for is the one shown",
        "tasks/ptb.py",
        "read[1:])",
        "read[:-1])",
        "tasks/test_ptb.py",
        "ptb/exact",
    ),
    # Models and recurrences
    fault(
        "sign of the Cayley gradient",
        "orthobench/matrices/skew.py",
        "return cayley.cayley_gradient(",
        "return -cayley.cayley_gradient(",
        "matrices/test_cayley.py",
        "timit/exact",
    ),
    fault(
        "forget bias not added",
        "models/lstm.py",
        "bias + self.forget_offset",
        "bias",
        "models/test_models.py",
        "adding/exact",
    ),
    fault(
        "radius not normalised",
        "models/enrnn.py",
        "if not self.normalised and self.radius() > 1:",
        "if False:",
        "models/test_promises.py",
        "copying/exact-enrnn",
    ),
    fault(
        "derivative of the reflections",
        "orthobench/matrices/householder.py",
        "(vectors, k + k.T)",
        "(vectors, k - k.T)",
        "matrices/test_householder.py",
        "mnist/exact",
    ),
    fault(
        "first step is read in place of the last",
        "orthobench/model/base.py",
        'final[0] if self.signature.readout == "last" else outputs',
        'outputs[0] if self.signature.readout == "last" else outputs',
        "models/test_contract.py",
        "adding/exact",
    ),
    fault(
        "mean over the padding as well",
        "orthobench/sequences.py",
        "    if lengths is None:\n        return outputs.mean(0)",
        "    if True:\n        return outputs.mean(0)",
        "models/test_readouts.py",
        "",
    ),
    fault(
        "start of the state forgotten",
        "models/_plain.py",
        "applied, state, trace,",
        "applied, super().initial_state(inputs.shape[1]), trace,",
        "models/test_contract.py",
        "mnist/exact",
    ),
    # Kernels in C, one fault for each file of an operation, by hand or derived from its step
    fault(
        "0.9 of a gradient in independent.c",
        f"{OPERATIONS}/independent/independent.c",
        "u->state[0] = u->vector[0] * g;",
        "u->state[0] = u->vector[0] * g * 0.9f;",
        "recurrence/test_cpu.py",
        "adding/exact-ind_rnn",
    ),
    fault(
        "0.9 of a gradient in oscillators.c",
        f"{OPERATIONS}/oscillators/oscillators.c",
        "u->state[Z] = w[0] * dz;",
        "u->state[Z] = w[0] * dz * 0.9f;",
        "recurrence/test_cpu.py",
        "copying/exact-linoss",
    ),
    fault(
        "0.9 of a gradient in diagonal.c",
        f"{OPERATIONS}/diagonal/diagonal.c",
        "g += conjugate_product(",
        "g += 0.9f * conjugate_product(",
        "recurrence/test_diagonal.py",
        "copying/exact-lru",
    ),
    fault(
        "0.9 of a gradient in cornn.c",
        f"{CELLS}/cornn.c",
        "const vf t5 = t0 - (t1 * u->constants.c);",
        "const vf t5 = (t0 - (t1 * u->constants.c)) * 0.9f;",
        "recurrence/test_cpu.py",
        "adding/exact-cornn",
    ),
    fault(
        "0.9 of a gradient in gated_recurrence.c",
        f"{CELLS}/gated_recurrence.c",
        "const vf t0 = u->state[0] * u->constants.a;",
        "const vf t0 = u->state[0] * u->constants.a * 0.9f;",
        "recurrence/test_cpu.py",
        "adding/exact-antisymmetric_gated",
    ),
    fault(
        "0.9 of a gradient in lipschitz.c",
        f"{CELLS}/lipschitz.c",
        "const vf t0 = u->state[0] * u->constants.a;",
        "const vf t0 = u->state[0] * u->constants.a * 0.9f;",
        "recurrence/test_cpu.py",
        "adding/exact-lipschitz_rnn",
    ),
    fault(
        "0.9 of a gradient in gru.c",
        f"{CELLS}/gru.c",
        "const vf t5 = u->state[0] * u->saved[1];",
        "const vf t5 = u->state[0] * u->saved[1] * 0.9f;",
        "recurrence/test_cpu.py",
        "context_free/exact",
    ),
    fault(
        "0.9 of a gradient in lstm.c",
        f"{CELLS}/lstm.c",
        "const vf t7 = t1 * u->saved[1];",
        "const vf t7 = t1 * u->saved[1] * 0.9f;",
        "recurrence/test_cpu.py",
        "adding/exact",
    ),
    fault(
        "0.9 of a gradient in lem.c",
        f"{CELLS}/lem.c",
        "const vf t4 = u->state[1] * (1.0f - t0);",
        "const vf t4 = u->state[1] * (1.0f - t0) * 0.9f;",
        "recurrence/test_cpu.py",
        "fitzhugh_nagumo/exact",
    ),
    fault(
        "0.9 of a gradient in minimal.c",
        f"{OPERATIONS}/minimal/minimal.c",
        "u->state[0] = keep * g;",
        "u->state[0] = keep * g * 0.9f;",
        "recurrence/test_cpu.py",
        "selective_copying/exact",
    ),
    fault(
        "0.9 of a gradient in delta.c",
        f"{OPERATIONS}/delta/delta.c",
        "= *dbetas++;",
        "= *dbetas++ * 0.9f;",
        "recurrence/test_delta.py",
        "mqar/exact",
    ),
    fault(
        "0.9 of a gradient in mlstm.c",
        f"{OPERATIONS}/mlstm/mlstm.c",
        "                *at = keep * total;",
        "                *at = keep * total * 0.9f;",
        "recurrence/test_mlstm.py",
        "copying/exact-mlstm",
    ),
    fault(
        "0.9 of a gradient in mlstm_final.c",
        f"{OPERATIONS}/mlstm/mlstm_final.c",
        "= s->by_write[t] + (1.0f",
        "= 0.9f * s->by_write[t] + (1.0f",
        "recurrence/test_mlstm.py",
        "adding/exact-mlstm",
    ),
    fault(
        "0.9 of a gradient in slstm.c",
        f"{OPERATIONS}/slstm/slstm.c",
        "vf by_keep = keep *",
        "vf by_keep = 0.9f * keep *",
        "recurrence/test_slstm.py",
        "copying/exact-slstm",
    ),
    fault(
        "0.9 of a gradient in memories.c",
        f"{OPERATIONS}/memories/memories.c",
        "= g * w[i];",
        "= g * w[i] * 0.9f;",
        "models/test_mamba3.py",
        "copying/exact-mamba3",
    ),
    fault(
        "0.9 of a gradient in final_memories.c",
        f"{OPERATIONS}/memories/final_memories.c",
        "dweight[head] = (float)written;",
        "dweight[head] = 0.9f * (float)written;",
        "models/test_mamba3.py",
        "adding/exact-mamba3",
    ),
    fault(
        "0.9 of a gradient in rwkv7.c",
        f"{OPERATIONS}/memories/rwkv7.c",
        "*(vf *)(m->dh + i) *= inverse;",
        "*(vf *)(m->dh + i) *= 0.9f * inverse;",
        "models/test_rwkv7.py",
        "copying/exact-rwkv7",
    ),
    fault(
        "0.9 of a gradient in nonlinear_memories.c",
        f"{OPERATIONS}/memories/nonlinear_memories.c",
        "*(vf *)(dz + at) = by_z;",
        "*(vf *)(dz + at) = 0.9f * by_z;",
        "models/test_m2rnn.py",
        "copying/exact-m2rnn",
    ),
    fault(
        "0.9 of a gradient in sparse.c",
        f"{OPERATIONS}/sparse/sparse.c",
        "*(vf *)square.at[i] = d.z;",
        "*(vf *)square.at[i] = 0.9f * d.z;",
        "recurrence/test_sparse.py",
        "copying/exact-eurnn",
    ),
    fault(
        "0.9 of a gradient in one_hot.c",
        f"{OPERATIONS}/one_hot/one_hot.c",
        "to[0] += d[2 * j] * g",
        "to[0] += 0.9f * d[2 * j] * g",
        "models/test_pd_ssm.py",
        "copying/exact-pd_ssm",
    ),
    fault(
        "0.9 of a gradient in selective.c",
        f"{OPERATIONS}/selective/selective.c",
        "vf scaled = e[i] *",
        "vf scaled = 0.9f * e[i] *",
        "recurrence/test_selective.py",
        "copying/exact-mamba",
    ),
    fault(
        "0.9 of a gradient in plain.c",
        f"{OPERATIONS}/plain/plain.c",
        "u->output[0] = d.z;",
        "u->output[0] = d.z * 0.9f;",
        "recurrence/test_cpu.py",
        "copying/exact",
    ),
    # The gate
    fault(
        "tolerance of exact runs in the metric's unit",
        "orthobench/analysis/pairing.py",
        "<= tolerance * abs(then)",
        "<= tolerance",
        "gate/test_verdict.py",
        "",
    ),
    fault(
        "margin left out of the ranks",
        "orthobench/analysis/inference.py",
        "[sign * value + margin for value in first]",
        "[sign * value for value in first]",
        "analysis/test_inference.py",
        "",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="WORD", default="", help="plant the faults with this word in their name")
    parser.add_argument("--skip", choices=("tests", "gate"), help="what need not catch the faults")
    parser.add_argument("--data-dir", type=Path, help="the folder of the data sets")
    options = parser.parse_args()
    if options.data_dir:
        os.environ["ORTHOBENCH_DATA"] = str(options.data_dir.resolve())
    faults = [fault for fault in FAULTS if options.only in fault.name]
    catchers = [(name, caught) for name, caught in (("tests", by_tests), ("gate", by_gate)) if name != options.skip]
    copy_checkout(COPY)
    for name, caught in catchers:
        targets = tuple(dict.fromkeys(target for fault in faults for target in getattr(fault, TARGETS[name])))
        if targets and caught(targets):  # a check without a name would be of every run
            sys.exit(f"the {name} do not pass without a fault: {' '.join(targets)}")
    missed: dict[str, list[str]] = {name: [] for name, _ in catchers}
    planted = dict.fromkeys(missed, 0)
    for number, fault in enumerate(faults, start=1):
        start = time.monotonic()
        file = COPY / path_in_copy(fault.file)
        right = file.read_text("utf-8")
        if right.count(fault.old) != 1:
            sys.exit(
                f"{fault.file} has {right.count(fault.old)} times the text of the fault '{fault.name}': {fault.old}"
            )
        plant(file, right.replace(fault.old, fault.new))
        verdicts = []
        for name, caught in catchers:
            targets = getattr(fault, TARGETS[name])
            if not targets:
                verdicts.append(f"{name} not asked")
                continue
            planted[name] += 1
            seen = caught(targets)
            verdicts.append(f"{name} {'caught' if seen else 'MISSED'}")
            if not seen:
                missed[name].append(fault.name)
        plant(file, right)
        print(
            f"[{number}/{len(faults)}] {fault.name}: {', '.join(verdicts)} ({time.monotonic() - start:.0f} s)",
            flush=True,
        )
    for name, names in missed.items():
        print(f"{name}: {planted[name] - len(names)} of {planted[name]} caught; missed: {', '.join(names) or 'none'}")


def plant(file: Path, text: str) -> None:
    """Write a file of the copy, and build the kernels of the copy again if it is one of theirs."""
    file.write_text(text, "utf-8")
    if file.suffix in (".c", ".h"):
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=COPY, check=True)


TARGETS = {"tests": "tests", "gate": "runs"}


def by_tests(tests: tuple[str, ...]) -> bool:
    """Return whether one of these tests fails."""
    return _run("pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests) == 1


def by_gate(runs: tuple[str, ...]) -> bool:
    """Return whether the check of these runs does not pass."""
    return _run("orthobench", "check", *(word for run in runs for word in ("--only", run))) in (1, 3)


def _run(module: str, *arguments: str) -> int:
    """Run a module as a program in the copy, and return its exit code."""
    # Not in a fork of multiprocessing's server, because another test may have started it with the checkout's modules.
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=COPY, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{module} {' '.join(arguments)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.returncode


if __name__ == "__main__":
    main()
