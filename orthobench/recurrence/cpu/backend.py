"""The choice of a C kernel for a call: which calls have one, and what it makes beside the recurrence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import kernels
from orthobench.recurrence.activations import Kind
from orthobench.recurrence.call import Call, Convolution, Projection, Result
from orthobench.recurrence.cpu import delta, native, selective
from orthobench.recurrence.cpu.dense import GRU, LEM, LSTM, CoRNN, Gated, Lipschitz, Recurrence
from orthobench.recurrence.cpu.independent import Independent
from orthobench.recurrence.cpu.mlstm import MLSTM
from orthobench.recurrence.cpu.scan import Scan
from orthobench.recurrence.cpu.slstm import SLSTM
from orthobench.recurrence.cpu.units import Minimal, Oscillators
from orthobench.recurrence.kernels import Kernel

_PROJECTING = ("recurrence", "lstm", "gru", "lem", "slstm", "mlstm")
INPUT_GRADIENTS = ("slstm", "mlstm")
"""Operations whose kernels make the gradient by the inputs of a projection too."""
_CONVOLVING: dict[str, Any] = {"delta_rule": delta, "selective_scan": selective}


def unsupported(call: Call) -> str | None:
    """Return the reason why this back end has no kernel for the call, or None."""
    x, parameters = call.x, call.parameters
    if x.device.type != "cpu":
        return f"the tensors are on {x.device.type}"
    if call.operation.name not in KERNELS:
        return "the operation has no C kernel"
    if not isinstance(call.weight, Tensor):
        return "W is applied by a function, which has no C kernel"
    if x.dtype is not torch.float32:
        return f"the C kernels are for float32, not {x.dtype}".replace("torch.", "")
    if parameters.get("cell_weight") is not None:
        return "the LSTM's C kernel has no cell_weight"
    activation = parameters.get("activation")
    if activation is not None and activation.kind is Kind.LEAKY_RELU and activation.slope < 0:
        return "leaky ReLU with a negative slope: its output does not show its side"
    return None


def unusable(call: Call) -> str | None:
    """Return the reason why the kernel of a supported call is not used on this machine, or None."""
    return native.unusable(call.operation.name)


def projects(call: Call) -> bool:
    """Return whether the call's kernel makes the inputs from their projection, step by step."""
    x = call.x
    if isinstance(x, Convolution):
        return convolves(call) and isinstance(x.source, Projection) and _CONVOLVING[call.operation.name].makes(x.source)
    name = call.operation.name
    fits = isinstance(x, Projection) and (name in INPUT_GRADIENTS or not x.inputs.requires_grad)
    return fits and name in _PROJECTING


def convolves(call: Call) -> bool:
    """Return whether the call's kernel makes the inputs from the source of their convolution."""
    x = call.x
    module = _CONVOLVING.get(call.operation.name)
    return module is not None and isinstance(x, Convolution) and bool(module.convolves(x))


def maps(call: Call) -> bool:
    """Return whether the call's kernel makes the weights of the steps from the map of a mapped call."""
    return call.operation.name == "selective_scan"


def run(call: Call) -> Result:
    """Run all steps."""
    return kernels.run(KERNELS[call.operation.name], call)


KERNELS: dict[str, type[Kernel]] = {
    "recurrence": Recurrence,
    "gated_recurrence": Gated,
    "lstm": LSTM,
    "gru": GRU,
    "cornn": CoRNN,
    "lem": LEM,
    "lipschitz": Lipschitz,
    "diagonal_recurrence": Scan,
    "delta_rule": delta.Delta,
    "independent_recurrence": Independent,
    "min_gru": Minimal,
    "min_lstm": Minimal,
    "oscillators": Oscillators,
    "selective_scan": selective.Selective,
    "slstm": SLSTM,
    "mlstm": MLSTM,
}
"""The kernels, by the operation's name."""
