"""The CPU kernel of PD-SSM's recurrence: calls of `one_hot.c`, in float32.

Forward keeps the places of the ones, and backward computes the matrices again. The transitions are divided into groups
by their number alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from orthobench.recurrence import workspace
from orthobench.recurrence.call import Convolution, Projection
from orthobench.recurrence.cpu import call_c, matrix_products
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.one_hot import one_hot_recurrence
from orthobench.recurrence.passes.convolution import has_few_inputs
from orthobench.recurrence.threads import ranges

_GROUPS, _TRANSITIONS = 8, 4
_BLOCK = 4  # BLOCK of `one_hot.c`
_SMALL = 1 << 20  # multiplications; below, starting a thread costs more than it saves


@kernel(one_hot_recurrence, "cpu")
class OneHot(Kernel):
    """The kernel of `one_hot_recurrence`."""

    @staticmethod
    def makes(x: Projection | Convolution, parameters: Mapping[str, Any]) -> bool:
        return isinstance(x, Projection) and has_few_inputs(x)

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        dictionary, transition = (arguments.parameters[name] for name in ("dictionary", "transitions"))
        # Checked here, because C would read whatever memory a wrong number leads to.
        low, high = arguments.weight.aminmax()
        if not 0 <= low <= high < len(transition):
            raise IndexError(f"{one_hot_recurrence.name}: a step has no row of the {len(transition)} transitions")
        h, packed = workspace.take(*x.shape[:2], arguments.state[0].shape[1]), _packed(dictionary)
        chosen = workspace.take(len(transition), packed.shape[-1])
        tensors = {"packed": packed, "x": x, "h": h, "chosen": chosen}
        _run("one_hot_places_forward", len(transition), arguments, **tensors)
        _run("one_hot_forward", call_c.row_groups(x.shape[1]), arguments, **tensors)
        is_projected = arguments.parameters.get("input_weight") is not None
        return (h,), (chosen, packed, x if is_projected else None)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h,), (chosen, packed, x), dictionary = tape.states, tape.saved, arguments.parameters["dictionary"]
        assert packed is not None
        transition = arguments.parameters["transitions"]
        dx, dstart = workspace.take(*h.shape), torch.empty_like(h[0])
        norms = h.new_empty(h.shape[:2]) if tape.norms else None
        places = arguments.weight.flatten().long()
        counts = places.bincount(minlength=len(transition))
        groups = min(_GROUPS, -(-len(transition) // _TRANSITIONS))
        dtransition, dpacked = torch.zeros_like(transition), packed.new_zeros(groups, *packed.shape)
        dinput_map = h.new_zeros(call_c.row_groups(h.shape[1]), 0 if x is None else x.shape[2], h.shape[2])
        tensors = {
            **{"packed": packed, "x": x, "h": h, "chosen": chosen, "dx": dx, "dinput_map": dinput_map},
            **{"dstart": dstart, "norms": norms},
            **{"grad_h": tape.gradient, "grad_last": tape.final[0], "steps_of": places.argsort(stable=True)},
            **{"first_of": pad(counts.cumsum(0), (1, 0)), "dtransition": dtransition, "dpacked": dpacked},
        }
        sizes = {"groups": groups, "shared": int((counts != 1).any())}
        _run("one_hot_backward", call_c.row_groups(h.shape[1]), arguments, sizes, **tensors)
        _run("one_hot_transitions_backward", groups, arguments, sizes, **tensors)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms, out=out)
        by_matrix = call_c.total(dpacked).permute(1, 0, 2, 3).flatten(1, 2)
        gradient = by_matrix[tuple(map(slice, dictionary.shape))].contiguous()
        by_name: dict[str, Tensor | None] = {"dictionary": gradient, "transitions": dtransition}
        if x is not None:
            by_name["input_weight"] = call_c.total(dinput_map).t().contiguous()
        return Gradients(dx if x is None else None, None, (dstart,), by_name)


def _packed(dictionary: Tensor) -> Tensor:
    """Return A in the order of `one_hot.c`, `[N / BLOCK, matrices, BLOCK, N]`, padded with zeros."""
    count, n, _ = dictionary.shape
    by_matrix = pad(dictionary, (0, matrix_products.padded(n) - n, 0, -n % _BLOCK, 0, -count % _BLOCK))
    packed: Tensor = by_matrix.unflatten(1, (-1, _BLOCK)).transpose(0, 1).contiguous()
    return packed


def _run(
    function: str, size: int, arguments: Arguments, sizes: dict[str, int] | None = None, /, **tensors: Tensor | None
) -> None:
    """Run one pass over its transitions or groups, whose number is `size`, split over the threads."""
    h, dictionary, transition = tensors["h"], arguments.parameters["dictionary"], arguments.parameters["transitions"]
    packed, (start,) = tensors["packed"], arguments.state
    assert h is not None
    assert packed is not None
    numbers = {"steps": h.shape[0], "batch": h.shape[1], "units": h.shape[2] // 2, "matrices": len(dictionary)}
    numbers |= {"padded": packed.shape[1], "transitions": len(transition), **(sizes or {})}
    tensors |= {"place": arguments.weight, "transition": transition, "start": start}
    weight, groups = arguments.parameters.get("input_weight"), call_c.row_groups(h.shape[1])
    if weight is not None:
        tensors["input_map"] = weight.t().contiguous()
    numbers |= {"inputs": 0 if weight is None else weight.shape[1], "row_groups": groups}
    work = len(transition) * dictionary.numel() + h.numel()
    threads = torch.get_num_threads() if work > _SMALL else 1
    walks = function in ("one_hot_forward", "one_hot_backward")
    shares = call_c.ranges_of_groups(h.shape[1], groups, threads) if walks else ranges(size, threads)
    call_c.run_ranges(function, shares, **numbers, **tensors)
