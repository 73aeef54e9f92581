"""Kernels for processors that this one is not: arm64, and x86-64 without AVX, emulated by qemu.

The others that this processor can run have all tests: see `make test-instructions`.
"""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest
import torch
from support.emulated import Program
from torch import Tensor

from orthobench.recurrence import reference
from orthobench.recurrence.operation import Operation
from orthobench.recurrence.ops.diagonal import diagonal_recurrence
from orthobench.recurrence.ops.lstm import lstm
from orthobench.recurrence.ops.minimal import min_lstm
from orthobench.recurrence.passes import head_norm, turned_heads

TOLERANCE = 5e-6  # relative; that of the operations' tests
SLOW_TOLERANCE = 1e-5  # float32 has the factor 1 - 1.2e-4 to 1.3e-8, so in a thousand steps the state is off by 1.3e-5


def normal(*shape: int) -> Tensor:
    """Numbers that float32 has, in float64."""
    return torch.randn(*shape, dtype=torch.float32).double()


def results(operation: Operation[...], x: Tensor, weight: Tensor, *state: Tensor, **parameters: object) -> list[Tensor]:
    """Return a direction for the outputs, the outputs, and the gradients of x, the weight and the initial state."""
    leaves = [each.clone().requires_grad_() for each in (x, weight, *state)]
    outputs, _ = reference.run(operation.call(leaves[0], leaves[1], tuple(leaves[2:]), None, **parameters))
    way = normal(*outputs.shape)
    return [way, outputs, *torch.autograd.grad(outputs, leaves, way)]


def add_products(program: Program) -> None:
    rows, weight, bias = normal(37, 21), normal(19, 21), normal(19)
    program.constants(p_rows=rows, p_weight=weight, p_bias=bias)
    program.memory(p_packed="21 * 64", p_out="37 * 19")
    program.call("pack(p_packed, p_weight, 19, 21, 21, 1, 1);")
    program.call("linear(0, 37, 37, 21, 19, p_rows, p_packed, p_bias, p_out);")
    program.expect("linear", "p_out", rows @ weight.T + bias)


def add_lstm(program: Program) -> None:
    x, weight, h0, c0 = 2 * normal(9, 7, 44), normal(44, 11) / 4, normal(7, 11), normal(7, 11)
    way, outputs, dx, dweight, dh0, dc0 = results(lstm, x, weight, h0, c0)
    program.constants(l_x=x, l_weight=weight, l_h0=h0, l_c0=c0, l_way=way)
    states = dict.fromkeys(("l_h", "l_c"), 9 * 7 * 11)
    program.memory(l_packed=4096, l_back=4096, l_saved=20000, l_dx=9 * 7 * 44, l_dh0=77, l_dc0=77, l_sum=4096, **states)
    program.call("pack(l_packed, l_weight, 11, 11, 11, 1, 4);")
    program.call("pack(l_back, l_weight, 11, 44, 1, 11, 1);")
    sizes = ".steps = 9, .batch = 7, .features = 11, .h0 = l_h0, .h = l_h, .saved = l_saved, .h0_2 = l_c0, .h_2 = l_c, "
    program.call(f"struct dense l_forward = {{{sizes} .x = l_x, .packed = l_packed}};")
    program.call("lstm_forward(&l_forward, 0, 7);")
    gradients = ".grad_h = l_way, .dx = l_dx, .dh0 = l_dh0, .dh0_2 = l_dc0"
    program.call(f"struct dense l_backward = {{{sizes} .packed = l_back, {gradients}}};")
    program.call("lstm_backward(&l_backward, 0, 7);")
    program.call("weight_gradient(0, 63, 7, 44, 11, 0, l_dx, 44, l_h, l_h0, NULL, l_sum);")
    program.expect("lstm", "l_h", outputs)
    program.expect("lstm_dx", "l_dx", dx)
    program.expect("lstm_dh0", "l_dh0", dh0)
    program.expect("lstm_dc0", "l_dc0", dc0)
    program.expect("lstm_dweight", "l_sum", dweight, ld="padded(11)")


def add_minimal(program: Program) -> None:
    x, bias, h0 = 2 * normal(40, 1, 63), normal(63), normal(1, 21)
    way, outputs, dx, dbias, dh0 = results(min_lstm, x, bias, h0, positive=True)
    program.constants(m_x=x, m_bias=bias, m_h0=h0, m_way=way)
    program.memory(m_h=40 * 21, m_dx=40 * 63, m_dbias=63, m_dh0=21)
    fields = ".steps = 40, .batch = 1, .width = 21, .variant = 3, .x = m_x, .weight = m_bias, .h0 = m_h0, .h = m_h, "
    fields += ".grad_h = m_way, .dx = m_dx, .dweight = m_dbias, .dh0 = m_dh0"
    program.call(f"struct units minimal = {{{fields}}};")
    program.call("minimal_forward(&minimal, 0, (21 + VL - 1) / VL);")
    program.call("minimal_backward(&minimal, 0, (21 + VL - 1) / VL);")
    program.expect("min_lstm", "m_h", outputs)
    program.expect("min_lstm_dx", "m_dx", dx)
    program.expect("min_lstm_dbias", "m_dbias", dbias)
    program.expect("min_lstm_dh0", "m_dh0", dh0)


def add_slow_state(program: Program) -> None:
    """A state that decays by 1e-4 in a step; the second product must not be added to a rounded first one."""
    program.constants(s_bias=torch.tensor([-30.0, -39.0, 0.0]), s_h0=torch.tensor([10.0]))
    program.memory(s_x=3000, s_h=1000)
    fields = ".steps = 1000, .batch = 1, .width = 1, .variant = 3, .x = s_x, .weight = s_bias, .h0 = s_h0, .h = s_h"
    program.call(f"struct units slow_state = {{{fields}}};")
    program.call("minimal_forward(&slow_state, 0, 1);")
    keep = torch.tensor(-9.0, dtype=torch.float64).exp().add(1).reciprocal()
    program.expect("slow_state", "s_h", 0.5 + 9.5 * keep ** torch.arange(1, 1001)[:, None])


def add_scan(program: Program) -> None:
    x, a, h0 = normal(20, 3, 14), normal(20, 3, 14) / 2, normal(3, 14)
    way, outputs, dx, da, dh0 = results(diagonal_recurrence, x, a, h0, is_complex=True)
    program.constants(d_x=x, d_a=a, d_h0=h0, d_way=way)
    program.memory(d_h=840, d_dx=840, d_da=840, d_dh0=42, d_latest="3 * (14 + VL - 1) / VL * VL + VL")
    sizes = "0, 3 * ((14 + VL - 1) / VL), 20, 3, 14, 1, 1"
    program.call(f"scan_forward({sizes}, d_x, d_a, d_h0, d_latest, d_h);")
    program.call(f"scan_backward({sizes}, d_a, d_h0, d_h, d_way, NULL, d_latest, d_dx, d_da, d_dh0);")
    program.expect("scan", "d_h", outputs)
    program.expect("scan_dx", "d_dx", dx)
    program.expect("scan_da", "d_da", da)
    program.expect("scan_dh0", "d_dh0", dh0)


def add_normalisation(program: Program) -> None:
    leaves = [(3 + normal(100, 30)).float().double(), normal(30), normal(30)]
    for leaf in leaves:
        leaf.requires_grad_()
    out, way = torch.nn.functional.layer_norm(leaves[0], (30,), leaves[1], leaves[2]), normal(100, 30)
    dx, dweight, dbias = torch.autograd.grad(out, leaves, way)
    program.constants(n_x=leaves[0], n_weight=leaves[1], n_bias=leaves[2], n_way=way)
    program.memory(n_out=3000, n_scales=200, n_dx=3000, n_dweight=60, n_dbias=60)
    program.call("layer_norm_forward(0, 100, 100, 30, 1e-5f, n_x, n_weight, n_bias, n_scales, n_out);")
    program.call("layer_norm_backward(0, 100, 100, 30, n_x, n_weight, n_scales, n_way, n_dx, n_dweight, n_dbias);")
    program.expect("layer_norm", "n_out", out)
    program.expect("layer_norm_dx", "n_dx", dx)
    program.expect("layer_norm_dweight", "n_dweight", dweight)
    program.expect("layer_norm_dbias", "n_dbias", dbias)


def add_passes(program: Program) -> None:
    y, weight, gate = normal(5, 42), normal(21), normal(5, 42)
    program.struct("head_norm")
    program.constants(g_y=y, g_weight=weight, g_gate=gate)
    program.memory(g_h=210)
    fields = ".heads = 2, .size = 21, .epsilon = 0.1f, .y = g_y, .weight = g_weight, .gate = g_gate, .h = g_h"
    program.call(f"struct head_norm g = {{{fields}}};")
    program.call("head_norm_forward(&g, 0, 5);")
    program.expect("head_norm", "g_h", head_norm.in_pytorch(y, weight, float(torch.tensor(0.1)), gate))
    features, bias, cosine, sine = normal(5, 21), normal(2, 21), normal(5, 2, 9), normal(5, 2, 9)
    program.struct("turned_heads")
    program.constants(r_features=features, r_bias=bias, r_cosine=cosine, r_sine=sine)
    program.memory(r_out=210)
    fields = ".heads = 2, .size = 21, .pairs = 9, .epsilon = 0.1f, .features = r_features, .weight = g_weight, "
    fields += ".bias = r_bias, .cosine = r_cosine, .sine = r_sine, .out = r_out"
    program.call(f"struct turned_heads r = {{{fields}}};")
    program.call("turned_heads_forward(&r, 0, 5);")
    turned = turned_heads.in_pytorch(features, weight, bias, cosine, sine, float(torch.tensor(0.1)))
    program.expect("turned_heads", "r_out", turned)
    logits, targets = 3 * normal(13, 7), torch.arange(13) % 7
    leaf = logits.requires_grad_()
    loss = torch.nn.functional.cross_entropy(leaf, targets, reduction="sum")
    program.constants(e_logits=logits, e_targets=targets)
    program.memory(e_gradient=91, e_loss=1)
    program.call("e_loss[0] = (float)cross_entropy(0, 13, 7, 1, e_logits, e_targets, e_gradient);")
    program.expect("cross_entropy", "e_loss", loss)
    (gradient,) = torch.autograd.grad(loss, leaf)
    program.expect("cross_entropy_gradient", "e_gradient", gradient)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "emulator"),
    [
        pytest.param("aarch64-linux-gnu-gcc", "qemu-aarch64", id="arm64"),
        pytest.param("gcc -march=x86-64", "qemu-x86_64 -cpu qemu64", id="x86-64"),
    ],
)
def test_kernels_on_an_emulated_processor_agree_with_the_reference(
    compiler: str, emulator: str, tmp_path: Path
) -> None:
    if "x86-64" in compiler and platform.machine() != "x86_64":
        pytest.skip("the compiler of this machine is for another processor")
    for needed in (compiler.split()[0], emulator.split()[0]):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    torch.manual_seed(0)
    program = Program()
    for add in (
        add_products,
        add_lstm,
        add_minimal,
        add_slow_state,
        add_scan,
        add_normalisation,
        add_passes,
    ):
        add(program)
    distances = program.run(compiler.split(), emulator.split(), tmp_path)
    assert distances.keys() == set(program.names)
    allowed = {"slow_state": SLOW_TOLERANCE}
    wrong = {name: each for name, each in distances.items() if not each <= allowed.get(name, TOLERANCE)}
    assert not wrong, wrong
