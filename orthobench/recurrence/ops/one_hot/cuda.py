"""The CUDA kernels of PD-SSM's recurrence, in Triton: four launches for a sequence and its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda import launch
from orthobench.recurrence.kernel_case import normal
from orthobench.recurrence.kernels import Arguments, Gradients, Tape, kernel
from orthobench.recurrence.ops.one_hot import one_hot_recurrence

MOST_UNITS = 256  # whose comparisons of places one program can hold
_SHARES = 16  # into which the steps of the dictionary's gradient are divided
_STEPS = 16  # rows of M that a program holds at once
_LEAST = 16  # units, as the kernels' tiles have them


@kernel(one_hot_recurrence, "cuda")
class OneHot(launch.TritonKernel):
    """The kernel of `one_hot_recurrence`."""

    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        units = parameters["dictionary"].shape[1]
        return f"{units} units are more than {MOST_UNITS}" if units > MOST_UNITS else None

    @staticmethod
    def problem(parameters: Mapping[str, Any], n: int, batch: int, steps: int) -> list[Tensor]:
        """Return tensors in which the largest entries of M are far above the others, whatever the rounding."""
        count, units = parameters["dictionary"].shape[:2]
        largest = torch.arange(count)[:, None] * 3 + torch.arange(units) * 5
        dictionary = normal(count, units, units, seed=3) / 4
        dictionary += 3 * torch.nn.functional.one_hot(largest % units, units)
        distinct = max(1, steps * batch - 1)  # so that two steps share a transition
        chosen = torch.nn.functional.one_hot(torch.arange(distinct) % count, count) + 0.1 / count
        factors = normal(distinct, 2 * units, seed=4) / 2
        places = (torch.arange(steps * batch) % distinct).double().view(steps, batch, 1)
        x, start = normal(steps, batch, n, seed=0), normal(batch, n, seed=2)
        return [x, places, start, dictionary, torch.cat((chosen.float().double(), factors), dim=-1)]

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        dictionary, transitions, sizes = _parts(arguments)
        places = torch.empty(len(transitions), sizes["n"], dtype=torch.int32, device=x.device)
        states, width = torch.empty_like(x), transitions.shape[1]
        steps, batch, _ = x.shape
        kernels, n = launch.kernels().one_hot, sizes["n"]
        grid = (-(-len(transitions) // _STEPS), n)
        kernels.one_hot_places[grid](
            dictionary, transitions, places, len(transitions), n, width, K=sizes["K"], N=sizes["N"], BT=_STEPS
        )
        kernels.one_hot_forward[(batch,)](
            x, arguments.weight, places, transitions, arguments.state[0], states, steps, batch, n, width,
            K=sizes["K"], N=sizes["N"], num_warps=1,  # a warp exchanges what the units read without a barrier
        )  # fmt: skip
        return (states,), (places,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        dictionary, transitions, sizes = _parts(arguments)
        (states,), (places,), (start,), weight = tape.states, tape.saved, arguments.state, arguments.weight
        assert places is not None
        final, gradient = launch.loss_gradient(tape)
        norms = tape.norms[0] if tape.norms else None
        (steps, batch, _), (count, n), width = states.shape, (sizes["K"], sizes["n"]), transitions.shape[1]
        dx, dstart = torch.empty_like(states), torch.empty_like(start)
        kernels = launch.kernels().one_hot
        kernels.one_hot_backward[(batch,)](
            gradient, weight, places, transitions, dx, dstart, dx if norms is None else norms, steps, batch, n, width,
            K=count, N=sizes["N"], TRACE=norms is not None, FINAL=final, num_warps=8,
        )  # fmt: skip
        before = torch.cat((start[None], states[:-1]))
        share = -(-steps * batch // _SHARES)
        by_share = dx.new_empty(_SHARES, *dictionary.shape)
        by_row = dx.new_empty(n, steps * batch, count)
        kernels.one_hot_transitions_backward[(_SHARES, n)](
            dx, before, weight, transitions, dictionary, by_share, by_row, steps * batch, share, n, width,
            K=count, KP=_power_of_two(count), N=sizes["N"], BT=_STEPS, num_warps=8,
        )  # fmt: skip
        # What a unit reads is multiplied by its factor.
        numbers = weight.flatten().long()
        sources = places[numbers].long().view(steps, batch, n, 1).expand(-1, -1, -1, 2)
        read_re, read_im = before.unflatten(-1, (n, 2)).gather(2, sources).unbind(-1)
        re, im = dx.unflatten(-1, (n, 2)).unbind(-1)
        by_factor = torch.stack((re * read_re + im * read_im, im * read_re - re * read_im), dim=-1)
        by_step = torch.cat((by_row.sum(0), by_factor.view(steps * batch, 2 * n)), dim=-1)
        dtransitions = torch.zeros_like(transitions).index_add_(0, numbers, by_step)
        return Gradients(dx, None, (dstart,), {"dictionary": by_share.sum(0), "transitions": dtransitions})


def _parts(arguments: Arguments) -> tuple[Tensor, Tensor, dict[str, int]]:
    """Return the dictionary, the transitions, and the sizes: K matrices of n units, and N, a power of two."""
    dictionary, transitions = (arguments.parameters[name] for name in ("dictionary", "transitions"))
    count, n, _ = dictionary.shape
    return dictionary, transitions, {"K": count, "n": n, "N": max(_LEAST, _power_of_two(n))}


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
