"""GRU: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from orthobench.recurrence.call import MODRELU, TANH, Activation, Form, Kind, State, Step
from orthobench.recurrence.operation import operation


def _check_gru(
    n: int,
    candidate_bias: Tensor | None,
    reset_after: bool,
    activation: Activation,
    activation_bias: Tensor | None,
) -> str | None:
    if candidate_bias is not None and (not reset_after or candidate_bias.shape != (n,)):
        return f"candidate_bias should be [{n}], and needs reset_after"
    if activation.kind not in (Kind.TANH, Kind.MODRELU):
        return f"the activation should be tanh or modrelu, not {activation.kind}"
    if activation_bias is not None and (activation.kind is Kind.TANH or activation_bias.shape != (n,)):
        return f"activation_bias should be [{n}], and needs modrelu; tanh's is part of x"
    return None


def _forms(n: int) -> Iterator[Form]:
    yield Form()
    yield Form({"reset_after": True}, {"candidate_bias": n})
    yield Form({"activation": MODRELU}, {"activation_bias": n})
    yield Form({"activation": MODRELU, "reset_after": True}, {"candidate_bias": n, "activation_bias": n})


@operation(gates=3, check=_check_gru, forms=_forms)
def gru(
    weight: Tensor,
    candidate_bias: Tensor | None = None,
    reset_after: bool = False,
    activation: Activation = TANH,
    activation_bias: Tensor | None = None,
) -> Step:
    """GRU: h_t = z h_{t-1} + (1 - z) tanh(x^g_t + W_g (r h_{t-1})), gates in the order r, z, g (torch's).

    With `reset_after` the last term is r (W_g h_{t-1} + b), b = `candidate_bias` `[n]`, as in cuDNN. modReLU may
    replace tanh (GORU); `activation_bias` `[n]` is its vector.
    """
    n = weight.shape[1]
    gates_weight, candidate_weight = weight[: 2 * n].T, weight[2 * n :].T

    def step(x: Tensor, h: Tensor) -> State:
        r, z = torch.addmm(x[:, : 2 * n], h, gates_weight).sigmoid().chunk(2, dim=-1)
        if reset_after:
            recurrent = h @ candidate_weight
            mixed = r * (recurrent if candidate_bias is None else recurrent + candidate_bias)
        else:
            mixed = (r * h) @ candidate_weight
        return (z * h + (1 - z) * activation(x[:, 2 * n :] + mixed, activation_bias),)

    return step
