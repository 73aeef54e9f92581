"""The kernels of the dense recurrences, in float32: calls of `one_state.c`, `lstm.c`, `gru.c`, `cornn.c` and `lem.c`.

Forward keeps the states and what the states do not give back ("saved" in these files). Backward runs the loop in
reverse. It makes dL/dW beside the loop while the sum fits the cache, and else as one product over all steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import kernels, stopwatch
from orthobench.recurrence.activations import Activation, Kind
from orthobench.recurrence.cpu import native, workspace
from orthobench.recurrence.kernels import Arguments, Gradients, Tape

_KINDS = {kind: number for number, kind in enumerate(Kind)}  # the order of `enum kind` in dense.h
_Settings = dict[str, int | float]


def _fields(tape: Tape, width: int | None, settings: Mapping[str, int | float]) -> dict[str, Any]:
    """Return the fields of a backward problem that all operations have; dx is `[T, B, width]`, if there is a width."""
    h = tape.states[0]
    gradients = {"grad_h": tape.gradient, **dict(zip(("grad_last", "grad_c_last"), tape.final, strict=False))}
    return {
        **settings,
        **{name: gradient for name, gradient in gradients.items() if gradient is not None},
        **dict(zip(("norms", "c_norms"), tape.norms, strict=False)),
        "h": h,
        "dh0": h.new_empty(h.shape[1:]),
        **_reading(tape),
        **({} if width is None else {"dx": workspace.take(*h.shape[:2], width)}),
    }


def _reading(tape: Tape) -> dict[str, Any]:
    """Return the fields of a backward problem for an output map of the states."""
    if tape.reading is None:
        return {}
    gradient, weight = tape.reading
    return {"outputs": len(weight), "grad_y": gradient, "packed_outputs": native.pack_transposed(weight)}


def _outputs(reading: kernels.Reading | None, h: Tensor) -> dict[str, Any]:
    """Return the fields of a forward problem for an output map of the states h, whose y the loop makes."""
    if reading is None:
        return {}
    weight, bias = reading.weight.contiguous(), reading.bias.contiguous()
    reading.y = workspace.take(*h.shape[:2], len(weight))
    return {"outputs": len(weight), "packed_outputs": native.pack(weight), "output_bias": bias, "y": reading.y}


def _saved(h: Tensor, parts: int) -> Tensor:
    """Return memory for the parts `[T, B, n]` that a forward pass keeps beside its states h."""
    return workspace.take(*h.shape[:2], native.kernels().saved_row(h.shape[2], parts))


def _inputs(x: Tensor, parameters: Mapping[str, Any], gates: int = 1, more: int = 0) -> dict[str, Any]:
    """Return the fields of a forward problem for x, or for a projection, whose inputs x is.

    U is packed as blocks of `gates` gates and, for a second product, of `more`. The bias is the weight of an additional
    input 1.
    """
    if "input_weight" not in parameters:
        return {"x": x}
    x, weight = native.with_bias(x, parameters["input_weight"], parameters["input_bias"])
    rows = weight.shape[0] // (gates + more) * gates
    fields = {"u": x, "packed_inputs": native.pack(weight[:rows], gates)}
    return {**fields, "packed_candidate_inputs": native.pack(weight[rows:], more)} if more else fields


def _sum_fields(tape: Tape, arguments: Arguments, u: Tensor | None, width: int | None = None) -> dict[str, Any]:
    """Return the fields of a backward problem that concern dL/dx, dL/dW and dL/dU, of dz `[T, B, width]`.

    By default dz is dL/dx `[T, B, gates * n]`. While the sums fit the cache they are made beside the loop. Then dL/dx
    is kept only where x is no projection.
    """
    (rows, n), h, (h0, *_) = arguments.weight.shape, tape.states[0], arguments.state
    width = width or rows
    width += 0 if tape.reading is None else len(tape.reading[1])
    columns = n if u is None else n + u.shape[-1]
    is_fused = native.fits_cache(width, columns) and (tape.needs_weight or u is not None)
    fields: dict[str, Any] = {"h0": h0, "groups": native.row_groups(h.shape[1])} if is_fused else {}
    if is_fused:
        fields["dweights"] = workspace.take(fields["groups"], width, native.padded(columns)).zero_()
    fields |= {"u": u} if u is not None else {}
    if u is not None and is_fused:
        return fields
    return {**fields, "dx": workspace.take(*h.shape[:2], rows)}


def _weight_gradients(
    tape: Tape, arguments: Arguments, fields: Mapping[str, Any]
) -> tuple[Tensor | None, dict[str, Tensor | None]]:
    """Return dL/dW, and dL/dU and dL/db of a projection by their names, after the backward loop of one product."""
    sums, u, (rows, n) = fields.get("dweights"), fields.get("u"), arguments.weight.shape
    output_weight = None
    if sums is not None:
        sums = native.joined_sums(sums)
        sums, output_weight = sums[:rows], sums[rows:, :n].contiguous()
    elif tape.needs_weight or u is not None:
        sums = _outer_sums(fields["dx"], fields["h"], arguments.state[0], u)
    dweight, by_name = _named(tape, arguments, sums, sums if sums is None else sums[:, n:])
    return dweight, by_name if tape.reading is None else {**by_name, "output_weight": output_weight}


def _named(
    tape: Tape, arguments: Arguments, weight: Tensor | None, inputs: Tensor | None
) -> tuple[Tensor | None, dict[str, Tensor | None]]:
    """Return dL/dW from the first n columns of `weight`, and dL/dU and dL/db from the first columns of `inputs`."""
    n = arguments.weight.shape[1]
    dweight = weight[:, :n].contiguous() if weight is not None and tape.needs_weight else None
    if inputs is None or "input_weight" not in arguments.parameters:
        return dweight, {}
    m = arguments.parameters["input_weight"].shape[1]
    bias = inputs[:, m].contiguous() if arguments.parameters["input_bias"] is not None else None
    return dweight, {"input_weight": inputs[:, :m].contiguous(), "input_bias": bias}


def _row_sums(h0: Tensor) -> Tensor:
    """Return memory for a sum over time of each row of h0 `[B, n]`: `[B, padded(n)]`, of zeros."""
    return h0.new_zeros(len(h0), native.padded(h0.shape[1]))


def _total(row_sums: Tensor, h0: Tensor) -> Tensor:
    """Return the sum over the batch `[n]` of `_row_sums`."""
    return native.total(row_sums)[: h0.shape[1]]


def _outer_sums(*arguments: Any) -> Tensor:
    """Return dL/d[W, U]; see `native.outer_sums`."""
    with stopwatch.part(stopwatch.WEIGHT_GRADIENT):
        return native.outer_sums(*arguments)


def _product(*arguments: Any) -> Tensor:
    """Return dL/dW; see `native.weight_gradient`."""
    with stopwatch.part(stopwatch.WEIGHT_GRADIENT):
        return native.weight_gradient(*arguments)


class Recurrence:
    reads = True

    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> _Settings:
        activation: Activation = parameters["activation"]
        step_size = parameters["step_size"]
        return {
            "kind": _KINDS[activation.kind],
            "slope": activation.slope,
            "epsilon": activation.epsilon,
            "euler": step_size is not None,
            "step_size": step_size or 0.0,
        }

    @staticmethod
    def bias(parameters: Mapping[str, Any]) -> Tensor | None:
        """Return the bias of every real column: a complex unit's two columns share one entry."""
        bias: Tensor | None = parameters["bias"]
        return bias if bias is None or not parameters["activation"].is_complex else bias.repeat_interleave(2)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        settings, bias = Recurrence.settings(arguments.parameters), Recurrence.bias(arguments.parameters)
        h = workspace.take(*x.shape[:2], arguments.weight.shape[0])
        # h does not give back the complex kinds' input, or the Euler form's update.
        needs_more = arguments.parameters["activation"].is_complex or settings["euler"]
        saved = _saved(h, 1) if keep and needs_more else None
        packed, inputs = native.pack(arguments.weight), _inputs(x, arguments.parameters)
        inputs |= _outputs(arguments.reading, h)
        native.loop(
            "recurrence_forward",
            settings,
            **{"packed": packed, "bias": bias, "h0": arguments.state[0], "h": h, "saved": saved, **inputs},
        )
        return (h,), (saved, inputs.get("u"))

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (saved, u) = arguments.weight, arguments.state, tape.saved
        bias = Recurrence.bias(arguments.parameters)
        fields = _fields(tape, None, Recurrence.settings(arguments.parameters)) | _sum_fields(tape, arguments, u)
        fields |= {"bias": bias, "saved": saved, "packed": native.pack_transposed(weight)}
        if bias is not None:
            fields["dbias"] = _row_sums(h0)
        native.loop("recurrence_backward", **fields)
        dweight, by_name = _weight_gradients(tape, arguments, fields)
        dbias = None if bias is None else _total(fields["dbias"], h0)
        if dbias is not None and arguments.parameters["activation"].is_complex:
            dbias = dbias[::2].contiguous()
        dx = fields["dx"] if u is None else None
        return Gradients(dx, dweight, (fields["dh0"],), {"bias": dbias, **by_name})


class Gated:
    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> _Settings:
        return {"euler": True, "step_size": parameters["step_size"]}

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (h0,) = arguments.state
        h = workspace.take(*x.shape[:2], h0.shape[-1])
        saved = _saved(h, 2) if keep else None
        settings = Gated.settings(arguments.parameters)
        native.loop("gated_forward", settings, x=x, packed=native.pack(arguments.weight), h0=h0, h=h, saved=saved)
        return (h,), (saved,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h0,), (h,), (saved,) = arguments.state, tape.states, tape.saved
        dmixed = workspace.take(*h.shape)
        fields = _fields(tape, 2 * h.shape[-1], Gated.settings(arguments.parameters))
        fields |= {"saved": saved, "dmixed": dmixed, "packed": native.pack_transposed(arguments.weight)}
        native.loop("gated_backward", **fields)
        dweight = _product(dmixed, h, h0) if tape.needs_weight else None
        return Gradients(fields["dx"], dweight, (fields["dh0"],))


class LSTM:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h0, c0 = arguments.state
        h, c = (workspace.take(*x.shape[:2], h0.shape[-1]) for _ in range(2))
        saved = _saved(h, 4) if keep else None
        packed, inputs = native.pack(arguments.weight, gates=4), _inputs(x, arguments.parameters, gates=4)
        native.loop("lstm_forward", packed=packed, h0=h0, c0=c0, h=h, c=c, saved=saved, **inputs)
        return (h, c), (saved, inputs.get("u"))

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (_, c0), (_, c), (saved, u) = arguments.state, tape.states, tape.saved
        fields = _fields(tape, None, {}) | _sum_fields(tape, arguments, u)
        fields |= {"saved": saved, "c": c, "c0": c0, "dc0": torch.empty_like(c0)}
        native.loop("lstm_backward", packed=native.pack_transposed(arguments.weight), **fields)
        dweight, by_name = _weight_gradients(tape, arguments, fields)
        return Gradients(fields["dx"] if u is None else None, dweight, (fields["dh0"], fields["dc0"]), by_name)


class GRU:
    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> _Settings:
        activation: Activation = parameters["activation"]
        return {
            "kind": _KINDS[activation.kind],
            "epsilon": activation.epsilon,
            "reset_after": parameters["reset_after"],
        }

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (h0,), parameters = arguments.weight, arguments.state, arguments.parameters
        n = h0.shape[-1]
        h = workspace.take(*x.shape[:2], n)
        saved = _saved(h, 4 if parameters["reset_after"] else 3) if keep else None
        inputs = _inputs(x, parameters, gates=2, more=1)
        native.loop(
            "gru_forward",
            GRU.settings(parameters),
            **{"h0": h0, "h": h, "saved": saved, **inputs},
            **{"candidate_bias": parameters["candidate_bias"], "bias": parameters["activation_bias"]},
            packed=native.pack(weight[: 2 * n], gates=2),
            packed_candidate=native.pack(weight[2 * n :]),
        )
        return (h,), (saved, inputs.get("u"))

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (h,), parameters = arguments.weight, arguments.state, tape.states, arguments.parameters
        saved, u = tape.saved
        n, reset_after = h0.shape[-1], parameters["reset_after"]
        fields = _fields(tape, None, GRU.settings(parameters))
        # With r after the product, sums beside the loop are also of dL/d(W_g h + b).
        fields |= _sum_fields(tape, arguments, u, (4 if reset_after else 3) * n)
        fields |= {"saved": saved, "h0": h0}
        if "dweights" not in fields:  # then the backward loop keeps one more factor of dL/dW
            fields["dmixed"] = workspace.take(*h.shape)
        vectors = {"candidate_bias": "dcandidate_bias", "activation_bias": "dbias"}
        vectors = {name: sums for name, sums in vectors.items() if parameters[name] is not None}
        fields |= {sums: _row_sums(h0) for sums in vectors.values()}
        native.loop(
            "gru_backward",
            packed=native.pack_transposed(weight[: 2 * n]),
            packed_candidate=native.pack_transposed(weight[2 * n :]),
            **fields,
        )
        dweight, by_name = _named(tape, arguments, *GRU.sums(tape, arguments, fields))
        by_name |= {name: _total(fields[sums], h0) for name, sums in vectors.items()}
        return Gradients(fields["dx"] if u is None else None, dweight, (fields["dh0"],), by_name)

    @staticmethod
    def sums(tape: Tape, arguments: Arguments, fields: Mapping[str, Any]) -> tuple[Tensor | None, Tensor | None]:
        """Return the sums of dL/dW and those of dL/d[U, b]."""
        (h0,), h, u = arguments.state, fields["h"], fields.get("u")
        n, reset_after = h0.shape[-1], arguments.parameters["reset_after"]
        if "dweights" in fields:
            sums = native.joined_sums(fields["dweights"])
            return torch.cat((sums[: 2 * n], sums[-n:])), sums[: 3 * n, n:]
        if not tape.needs_weight and u is None:
            return None, None
        gates, candidate = fields["dx"][..., : 2 * n], fields["dx"][..., 2 * n :]
        sums = _outer_sums(gates, h, h0, u)
        if not reset_after:
            sums = torch.cat((sums, _outer_sums(candidate, fields["dmixed"], None, u)))
            return sums, sums[:, n:]
        dweight = torch.cat((sums[:, :n], _outer_sums(fields["dmixed"], h, h0)[:, :n]))
        if u is None:
            return dweight, None
        m = u.shape[-1]
        return dweight, torch.cat((sums[:, n : n + m], _outer_sums(candidate, u, None)[:, :m]))


class CoRNN:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (y0, z0) = arguments.weight, arguments.state
        n = y0.shape[-1]
        y, z = workspace.take(*x.shape), workspace.take(*x.shape)
        saved = _saved(y, 1) if keep else None
        native.loop(
            "cornn_forward",
            arguments.parameters,
            **{"x": x, "h0": y0, "c0": z0, "h": y, "c": z, "saved": saved},
            packed=native.pack(weight[:, :n]),
            packed_candidate=native.pack(weight[:, n:]),
        )
        return (y, z), (saved,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (y0, z0), (y, z), (saved,) = arguments.state, tape.states, tape.saved
        fields = _fields(tape, y.shape[-1], arguments.parameters)
        fields |= {"saved": saved, "dc0": torch.empty_like(z0)}
        native.loop("cornn_backward", packed=native.pack_transposed(arguments.weight, gates=2), **fields)
        dweight = None
        if tape.needs_weight:
            sources = ((y, y0), (z, z0))
            dweight = torch.cat([_product(fields["dx"], *source) for source in sources], dim=1)
        return Gradients(fields["dx"], dweight, (fields["dh0"], fields["dc0"]))


class LEM:
    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> _Settings:
        return {"step_size": parameters["step_size"]}

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (y0, z0) = arguments.weight, arguments.state
        n = y0.shape[-1]
        y, z = (workspace.take(*x.shape[:2], n) for _ in range(2))
        saved, inputs = _saved(y, 4) if keep else None, _inputs(x, arguments.parameters, gates=3, more=1)
        native.loop(
            "lem_forward",
            LEM.settings(arguments.parameters),
            **{"h0": y0, "c0": z0, "h": y, "c": z, "saved": saved, **inputs},
            packed=native.pack(weight[: 3 * n], gates=3),
            packed_candidate=native.pack(weight[3 * n :]),
        )
        return (y, z), (saved, inputs.get("u"))

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (y0, z0), (y, z), (saved, u) = arguments.weight, arguments.state, tape.states, tape.saved
        n = y0.shape[-1]
        fields = _fields(tape, None, LEM.settings(arguments.parameters)) | _sum_fields(tape, arguments, u)
        fields |= {"saved": saved, "h0": y0, "c": z, "c0": z0, "dc0": torch.empty_like(z0)}
        native.loop(
            "lem_backward",
            packed=native.pack_transposed(weight[: 3 * n]),
            packed_candidate=native.pack_transposed(weight[3 * n :]),
            **fields,
        )
        sums = None
        if "dweights" in fields:
            sums = native.joined_sums(fields["dweights"])
        elif tape.needs_weight or u is not None:
            dz, last = fields["dx"][..., : 3 * n], fields["dx"][..., 3 * n :]
            sums = torch.cat((_outer_sums(dz, y, y0, u), _outer_sums(last, z, None, u)))
        dweight, by_name = _named(tape, arguments, sums, sums if sums is None else sums[:, n:])
        return Gradients(fields["dx"] if u is None else None, dweight, (fields["dh0"], fields["dc0"]), by_name)


class Lipschitz:
    @staticmethod
    def settings(parameters: Mapping[str, Any]) -> _Settings:
        return {"euler": True, "step_size": parameters["step_size"]}

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h = workspace.take(*x.shape)
        saved = _saved(h, 1) if keep else None
        packed = native.pack(arguments.weight, gates=2)
        settings = Lipschitz.settings(arguments.parameters)
        native.loop("lipschitz_forward", settings, x=x, packed=packed, h0=arguments.state[0], h=h, saved=saved)
        return (h,), (saved,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (h,), (saved,) = arguments.weight, arguments.state, tape.states, tape.saved
        n = h.shape[-1]
        dlinear = workspace.take(*h.shape)
        fields = _fields(tape, n, Lipschitz.settings(arguments.parameters)) | {"saved": saved, "dmixed": dlinear}
        native.loop(
            "lipschitz_backward",
            packed=native.pack_transposed(weight[:n]),
            packed_candidate=native.pack_transposed(weight[n:]),
            **fields,
        )
        dweight = None
        if tape.needs_weight:
            dweight = torch.empty_like(weight)
            _product(dlinear, h, h0, dweight[:n])
            _product(fields["dx"], h, h0, dweight[n:])
        return Gradients(fields["dx"], dweight, (fields["dh0"],))
