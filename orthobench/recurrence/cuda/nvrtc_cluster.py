"""The cluster kernels, compiled by NVRTC: all steps in one launch for sizes whose W fits no single block.

A cluster of 1 to 8 blocks holds W in its registers and runs a few batch rows. It needs compute capability 9.0. The
plain recurrence has 193 to 512 features, LSTM and GRU up to 256.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cuda import launch, nvrtc, nvrtc_row
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape

NAME = "cluster"
"""The name of these kernels in the verdicts of their self-tests."""
THREADS = 256
CAPABILITY = (9, 0)
_FOLDER = Path(__file__).parent
PLAIN_SOURCE, LSTM_SOURCE, GRU_SOURCE, RESET_SOURCE = (
    _FOLDER / name for name in ("cluster.cu", "cluster_lstm.cu", "cluster_gru.cu", "cluster_reset.cu")
)


@dataclass(frozen=True)
class Layout:
    """How a cluster holds W and how many batch rows it may run.

    Attributes:
        blocks: blocks of a cluster.
        groups: parts of a product's inputs in a warp.
        depth: inputs of a group.
        at_once: the most rows whose product a thread makes in one pass.
        rows: the numbers of rows to choose from, ascending.
    """

    blocks: int
    groups: int
    depth: int
    at_once: int
    rows: tuple[int, ...]

    def constants(self, rows: int) -> dict[str, int]:
        """Return the macros of `cluster.cuh` for this number of rows."""
        per_pass = min(rows, self.at_once)
        sizes = {"CLUSTER": self.blocks, "GROUPS": self.groups, "DEPTH": self.depth}
        return {**sizes, "ROWS": per_pass, "PASSES": rows // per_pass}

    def choose(self, batch: int, processors: int) -> int:
        """Return the fewest rows of a cluster with which all clusters run at once, or the most that it may have."""
        at_once = processors // self.blocks
        return next((rows for rows in self.rows if -(-batch // rows) <= at_once), self.rows[-1])


def plain(n: int) -> Layout:
    """Return the layout of the plain recurrence, in both passes."""
    return Layout(4 if n <= 256 else 8, 16, _depth(n, 16), 4, (1, 2, 4, 8))


def gated_forward(n: int) -> Layout:
    """Return the layout of a product with n inputs and four columns a unit."""
    if n <= 128:
        return Layout(1 if n <= 64 else 2, 4, _depth(n, 4), 1, (1, 2))
    return Layout(8, 8, _depth(n, 8), 2, (1, 2, 4))


def gated_backward(n: int) -> Layout:
    """Return the layout of a product with four inputs a unit and n columns."""
    if n <= 128:
        return Layout(1 if n <= 64 else 2, 16, _depth(4 * n, 16), 4, (1, 2, 4))
    return Layout(8, 32, _depth(4 * n, 32), 4, (1, 2, 4))


def reset_before(n: int) -> Layout:
    """Return the layout of the GRU with the reset gate before the product, in both passes."""
    groups = 8 if n <= 128 else 16
    blocks = 8 if n > 128 else 1 if n <= 64 else 2
    return Layout(blocks, groups, _depth(n, groups), groups // 4, (1, 2, 4))


def _depth(inputs: int, groups: int) -> int:
    return 4 * -(-inputs // (4 * groups))  # quadruples


def serves(call: Call) -> bool:
    """Return whether there is a kernel for a call that `cuda.unsupported` allows."""
    n = call.x.shape[-1] // call.operation.gates
    match call.operation.name:
        case "recurrence":
            has_kernel = nvrtc_row.MAX_FEATURES < n <= 512 and nvrtc_row.has(call.parameters.get("activation"))
        case "lstm" | "gru":
            has_kernel = n <= 256
        case _:
            has_kernel = False
    return has_kernel and has_clusters(call.x.device)


def has_clusters(device: torch.device) -> bool:
    """Return whether a device has clusters of blocks."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= CAPABILITY


def run(call: Call) -> Result:
    """Run all steps.

    Raises:
        NvrtcError: the kernel cannot be compiled or launched.
    """
    with torch.cuda.device(call.x.device):
        return kernels.run(KERNELS[call.operation.name], call)


def _launch(
    source: Path, name: str, layout: Layout, form: dict[str, int], h0: Tensor, *arguments: Tensor | int | float
) -> None:
    """Launch the kernel on all batch rows of `h0`, each of the same run."""
    batch = h0.shape[0]
    rows = layout.choose(batch, launch.processors(h0.device))
    blocks = -(-batch // rows) * layout.blocks
    nvrtc.load(source, h0.device, layout.constants(rows) | form).launch(name, blocks, THREADS, arguments)


def _sizes(states: Tensor) -> tuple[int, int, int, int]:
    """Return steps, batch rows of a run, runs and features, as the kernels read them."""
    steps, batch, n = states.shape
    return steps, batch, 1, n


class _Plain:
    """The kernel of `recurrence`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        activation, step_size = arguments.parameters["activation"], arguments.parameters["step_size"]
        (h0,), bias, n = arguments.state, arguments.parameters["bias"], x.shape[-1]
        states = torch.empty_like(x)
        updates = torch.empty_like(x) if step_size is not None else states
        b = x.new_zeros(n) if bias is None else bias
        form = {"COLUMNS": 4, **nvrtc_row.form(activation, step_size is not None, False, False)}
        _launch(
            *(PLAIN_SOURCE, "cluster_forward", plain(n), form, h0),
            *(x, arguments.weight, h0, b, states, updates, *_sizes(x)),
            *(float(step_size or 0.0), float(activation.slope), float(activation.epsilon)),
        )
        return (states,), (updates if step_size is not None else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        activation, step_size = arguments.parameters["activation"], arguments.parameters["step_size"]
        (h0,), (states,), bias = arguments.state, tape.states, arguments.parameters["bias"]
        saved = states if tape.saved[0] is None else tape.saved[0]
        is_final, gradient = launch.loss_gradient(tape)
        dx, dh0, dbias = torch.empty_like(states), torch.empty_like(h0), torch.empty_like(h0)
        total = torch.empty_like(states) if tape.norms else dx
        form = {"COLUMNS": 4, **nvrtc_row.form(activation, step_size is not None, is_final, bool(tape.norms))}
        _launch(
            *(PLAIN_SOURCE, "cluster_backward", plain(h0.shape[1]), form, h0),
            *(gradient, arguments.weight, saved, dx, total, dh0, dbias, *_sizes(states)),
            *(float(step_size or 0.0), float(activation.slope)),
        )
        for norms in tape.norms:
            launch.record(norms, total)
        weight = launch.weight_gradient(dx, states, h0)
        return Gradients(dx, weight, (dh0,), {"bias": None if bias is None else dbias.sum(0)})


def _pass(is_forward: bool, is_final: bool = False, is_traced: bool = False) -> dict[str, int]:
    return {"FORWARD": int(is_forward), "FINAL": int(is_final), "TRACE": int(is_traced)}


class _LSTM:
    """The kernel of `lstm`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h0, c0 = arguments.state
        h, c, gates = x.new_empty(len(x), *h0.shape), x.new_empty(len(x), *h0.shape), torch.empty_like(x)
        _launch(
            *(LSTM_SOURCE, "lstm_forward", gated_forward(h0.shape[1]), _pass(True), h0),
            *(x, arguments.weight, h0, c0, h, c, gates, *_sizes(h)),
        )
        return (h, c), (gates,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h0, c0), (h, c), (gates,), weight = arguments.state, tape.states, tape.saved, arguments.weight
        assert gates is not None
        (is_final, grad_h), grad_c = launch.loss_gradient(tape), tape.last(1)
        dx, dh0, dc0, traced = torch.empty_like(gates), torch.empty_like(h0), torch.empty_like(c0), bool(tape.norms)
        total_h, total_c = (torch.empty_like(h), torch.empty_like(c)) if traced else (dx, dx)
        _launch(
            *(LSTM_SOURCE, "lstm_backward", gated_backward(h0.shape[1]), _pass(False, is_final, traced), h0),
            *(grad_h, grad_c, weight, gates, c, c0, dx, total_h, total_c, dh0, dc0, *_sizes(h)),
        )
        for norms, total in zip(tape.norms, (total_h, total_c), strict=False):
            launch.record(norms, total)
        return Gradients(dx, launch.weight_gradient(dx, h, h0), (dh0, dc0))


class _ResetAfter:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments) -> Any:
        (h0,), bias = arguments.state, arguments.parameters["candidate_bias"]
        batch, n = h0.shape
        states, gates = x.new_empty(len(x), batch, n), x.new_empty(len(x), batch, 4 * n)
        b = x.new_zeros(n) if bias is None else bias
        _launch(
            *(GRU_SOURCE, "gru_forward", gated_forward(n), _pass(True), h0),
            *(x, arguments.weight, h0, b, states, gates, *_sizes(states)),
        )
        return (states,), (gates,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h0,), (states,), (gates,), weight = arguments.state, tape.states, tape.saved, arguments.weight
        assert gates is not None
        is_final, grad = launch.loss_gradient(tape)
        steps, batch, n = states.shape
        dx, mixed = states.new_empty(steps, batch, 3 * n), states.new_empty(steps, batch, 3 * n)
        dh0, traced = torch.empty_like(h0), bool(tape.norms)
        total = torch.empty_like(states) if traced else dx
        _launch(
            *(GRU_SOURCE, "gru_backward", gated_backward(n), _pass(False, is_final, traced), h0),
            *(grad, weight, gates, states, h0, dx, mixed, total, dh0, *_sizes(states)),
        )
        for norms in tape.norms:
            launch.record(norms, total)
        has_bias = arguments.parameters["candidate_bias"] is not None
        db = mixed[..., 2 * n :].sum((0, 1)) if has_bias else None
        return Gradients(dx, launch.weight_gradient(mixed, states, h0), (dh0,), {"candidate_bias": db})


class _ResetBefore:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments) -> Any:
        (h0,), gates = arguments.state, torch.empty_like(x)
        states, reset = x.new_empty(len(x), *h0.shape), x.new_empty(len(x), *h0.shape)
        _launch(
            *(RESET_SOURCE, "reset_forward", reset_before(h0.shape[1]), _pass(True), h0),
            *(x, arguments.weight, h0, states, reset, gates, *_sizes(states)),
        )
        return (states,), (reset, gates)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h0,), (states,), (reset, gates), weight = arguments.state, tape.states, tape.saved, arguments.weight
        assert reset is not None
        assert gates is not None
        is_final, grad = launch.loss_gradient(tape)
        n, dx, dh0, traced = h0.shape[1], torch.empty_like(gates), torch.empty_like(h0), bool(tape.norms)
        total = torch.empty_like(states) if traced else dx
        _launch(
            *(RESET_SOURCE, "reset_backward", reset_before(n), _pass(False, is_final, traced), h0),
            *(grad, weight, gates, states, h0, dx, total, dh0, *_sizes(states)),
        )
        for norms in tape.norms:
            launch.record(norms, total)
        return Gradients(dx, launch.reset_weight_gradient(dx, states, h0, reset), (dh0,))


class _GRU(launch.GruForms):
    reset_after, reset_before = _ResetAfter, _ResetBefore


KERNELS: dict[str, type[Kernel]] = {"recurrence": _Plain, "lstm": _LSTM, "gru": _GRU}
"""The kernels, by the operation's name."""
