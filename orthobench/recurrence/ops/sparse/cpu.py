"""The C kernel of `sparse_recurrence`: calls of `sparse.c`, in float32.

The kernel reads tables that say for each layer, and for each transposed one, in which order it computes its units.
Units that read the same ones come one after the other, because these are then in the nearest cache.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import workspace
from orthobench.recurrence.cpu import call_c, dense, matrix_products
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.sparse import SparseLayers, sparse_recurrence
from orthobench.recurrence.threads import ranges


@dataclass(frozen=True)
class Tables:
    """The order in which layers, or transposed ones, are computed.

    Attributes:
        targets: the units in this order, `[layers, units]`.
        sources: the units that each of them reads, layer by layer `[units, taps]`.
        places: where its numbers are in the weight `[taps of all layers, units]`, likewise.
    """

    targets: Tensor
    sources: Tensor
    places: Tensor


@kernel(sparse_recurrence, "cpu")
class SparseRecurrence(Kernel):
    unsupported = staticmethod(dense.unsupported_activation)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h = workspace.take(*x.shape)
        z = workspace.take(*x.shape) if keep and arguments.parameters["activation"].is_complex else None
        _run("forward", arguments, {"x": x, "h": h, "z": z})
        return (h,), (z,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h,), (z,), (h0,), parameters = tape.states, tape.saved, arguments.state, arguments.parameters
        layers, weight, bias = parameters["layers"], arguments.weight, parameters["bias"]
        places = forward_tables(layers).places
        sums = weight.new_zeros(_blocks(len(h0)), weight.numel()) if tape.needs_weight else None
        by_row = None if bias is None else h0.new_zeros(len(h0), matrix_products.padded(h0.shape[1]))
        dx, dh0 = workspace.take(*h.shape), torch.empty_like(h0)
        results = {"dx": dx, "dh0": dh0, "dweight": sums, "dbias": by_row}
        given = {"grad_h": tape.gradient, "grad_last": tape.final[0], **dict(zip(("norms",), tape.norms, strict=False))}
        transposed = back_tables(layers)
        numbers = _numbers(weight, layers, transposed.places)
        if layers.is_complex:
            numbers[:, 1].neg_()
        tables = {"targets_back": transposed.targets, "sources_back": transposed.sources, "weight_back": numbers}
        _run("backward", arguments, {"h": h, "z": z, **results, **given, **tables})
        dweight = dbias = None
        if sums is not None:
            dweight = torch.empty_like(weight)
            parts = _parts(layers)
            dweight.view(-1, parts)[places] = call_c.total(sums).view(-1, parts)
        if by_row is not None:
            dbias = parameters["activation"].by_unit(call_c.total(by_row)[: h0.shape[1]]).contiguous()
        return Gradients(dx, dweight, (dh0,), {"bias": dbias})


@functools.lru_cache(maxsize=100)
def forward_tables(layers: SparseLayers) -> Tables:
    """Return the tables of the layers."""
    return _tables([(index, torch.arange(index.numel(), device="cpu").view_as(index)) for index in layers.index])


@functools.lru_cache(maxsize=100)
def back_tables(layers: SparseLayers) -> Tables:
    """Return the tables of the transposed layers."""
    transposed = []
    for index in layers.index:
        places = index.flatten().argsort(stable=True).view(-1, len(index)).T
        transposed.append((places % index.shape[1], places))
    return _tables(transposed)


def _tables(layers: list[tuple[Tensor, Tensor]]) -> Tables:
    """Return the tables of layers, of which the units and the places of the numbers `[taps, units]` are given."""
    targets, sources, places, first = [], [], [], 0
    for index, numbers in layers:
        order = index.amin(0).argsort(stable=True)
        targets.append(order)
        sources.append(index.T[order].flatten())
        places.append(numbers.T[order].flatten() + first)
        first += numbers.numel()
    return Tables(torch.stack(targets), torch.cat(sources), torch.cat(places))


def _parts(layers: SparseLayers) -> int:
    return 2 if layers.is_complex else 1


def _numbers(weight: Tensor, layers: SparseLayers, places: Tensor) -> Tensor:
    """Return the numbers of the weight at these places, `[numbers, parts]`."""
    return weight.view(-1, _parts(layers))[places]


def _blocks(batch: int) -> int:
    return -(-batch // call_c.kernels().lanes)


def _run(direction: str, arguments: Arguments, tensors: dict[str, Any]) -> None:
    """Run one direction over all steps, the blocks of batch rows split over the threads."""
    (h0,), parameters = arguments.state, arguments.parameters
    layers, activation, bias = parameters["layers"], parameters["activation"], parameters["bias"]
    if bias is not None:
        bias = activation.by_column(bias)
    tables = forward_tables(layers)
    fields = {"targets": tables.targets, "sources": tables.sources, "bias": bias, "h0": h0}
    fields |= {"weight": _numbers(arguments.weight, layers, tables.places)}
    fields |= {"taps": torch.tensor([len(index) for index in layers.index], device="cpu")}
    steps, batch, features = tensors["h"].shape
    fields |= {"steps": steps, "batch": batch, "features": features, "layers": len(layers.index)}
    fields |= {"parts": _parts(layers), "kind": dense.KINDS[activation.kind]}
    fields |= {"parameter": getattr(activation, activation.number)}
    blocks, products = _blocks(batch), steps * batch * arguments.weight.numel()
    count = torch.get_num_threads() if products > call_c.SMALL else 1
    call_c.run_ranges(f"sparse_{direction}", ranges(blocks, count), **fields, **tensors)
