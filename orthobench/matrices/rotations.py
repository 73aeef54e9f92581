"""Products of layers of 2 x 2 rotations (the EUNN of Jing et al. 2017).

A layer splits n units into n / 2 pairs (a, b), a < b, and rotates each pair by its own angle. With complex units the
pair's second unit is first multiplied by a phase:

    [h_a]    [cos t   -sin t] [        h_a]
    [h_b] <- [sin t    cos t] [e^(i p) h_b]

The layers act on the state in order. Because every layer has an inverse, only the rows after the last layer are saved;
the backward pass recomputes the others. Given the rows y after a layer and their gradient g, with sums over rows, dL/dt
= Re sum(g_b conj(y_a) - g_a conj(y_b)). With the second unit's rows and gradient after the phase, dL/dp = Im sum(g_b
conj(h_b)). A product of n layers therefore takes memory of order n^2 instead of autograd's n^3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from orthobench.matrices.skew import applied
from orthobench.recurrence import SparseLayers


@dataclass(frozen=True)
class Pairing:
    """A pairing of units: rolled back by `shift`, j and j + `distance` form a pair in each block of 2 `distance`."""

    distance: int
    shift: int = 0


@dataclass(frozen=True)
class Rotations:
    """The layers of a product over n units, and its number of angles."""

    units: int
    layers: tuple[Pairing, ...]
    angle_count: int

    def by_layer(self, angles: Tensor) -> Tensor:
        """Return angles `[angle_count]` as one row per layer, `[L, n / 2]`.

        Every second layer of the tunable style is rolled by one and thus pairs the last unit with the first. This pair
        is the last of its layer; its angle is zero, because these two units should not be rotated.
        """
        half = self.units // 2
        unturned = len(self.layers) * half - self.angle_count
        if unturned:
            angles = torch.nn.functional.pad(angles.view(unturned, -1), (0, 1))
        return angles.view(-1, half)


def tunable(units: int, capacity: int) -> Rotations:
    """Return the tunable style: `capacity` layers that pair (0, 1), (2, 3), ... and (1, 2), (3, 4), ... in turn.

    Raises:
        ValueError: the number of units or of layers is odd, or the layers are not from 2 to the number of units.
    """
    if units % 2:
        raise ValueError(f"hidden_size={units} is odd: the tunable style pairs units, so give an even number")
    if capacity % 2 or not 2 <= capacity <= units:
        raise ValueError(f"capacity={capacity} should be an even number from 2 to hidden_size ({units})")
    return Rotations(units, (Pairing(1), Pairing(1, shift=1)) * (capacity // 2), capacity // 2 * (units - 1))


def fft(units: int) -> Rotations:
    """Return the FFT style: log2 n layers with pairs n / 2, n / 4, ..., 1 apart.

    Raises:
        ValueError: the number of units is not a power of two.
    """
    count = units.bit_length() - 1
    if count < 1 or units != 1 << count:
        raise ValueError(f"hidden_size={units} is not a power of two, which the FFT style needs: give one from 2 up")
    return Rotations(units, tuple(Pairing(units >> (i + 1)) for i in range(count)), count * units // 2)


def rotate(rows: Tensor, rotations: Rotations, angles: Tensor, phases: Tensor | None = None) -> Tensor:
    """Return h W^T for rows h `[B, n]`, where W is the product of the layers.

    Args:
        rows: real, or complex where there are phases.
        rotations: the layers.
        angles: t of every pair, `[L, n / 2]`, from `Rotations.by_layer`.
        phases: p of every pair, likewise.
    """
    return applied(_Rotate, _plain, rows, angles, phases, rotations.layers)


def rotation_product(rotations: Rotations, angles: Tensor) -> Tensor:
    """Return W `[n, n]`, the product of the layers of real units; angles as for `rotate`.

    In the FFT style the layers after the first rotate the two halves of the units separately. W is therefore built from
    the last layer to the first: the products P and Q over d units each, with cosines C and sines S, become [[P C, -P
    S], [Q S, Q C]].
    """
    if any(layer != Pairing(rotations.units >> i) for i, layer in enumerate(rotations.layers, 1)):
        return rotate(torch.eye(rotations.units, dtype=angles.dtype, device=angles.device), rotations, angles).T
    blocks = angles.new_ones(rotations.units, 1, 1)
    for cos, sin in zip(angles.cos().flip(0), angles.sin().flip(0), strict=True):
        distance = blocks.shape[-1]
        first, second = blocks.view(-1, 2, distance, distance).unbind(1)
        cos, sin = cos.view(-1, 1, distance), sin.view(-1, 1, distance)
        halves = torch.cat((first * cos, first * -sin), -1), torch.cat((second * sin, second * cos), -1)
        blocks = torch.cat(halves, -2)
    return blocks[0]


@cache
def rotation_layers(rotations: Rotations, is_complex: bool) -> SparseLayers:
    """Return the layers as sparse ones of two taps: each unit reads itself, and then the other unit of its pair."""
    own, layers = torch.arange(rotations.units, device="cpu"), []
    for layer, place in zip(rotations.layers, _places(rotations), strict=True):
        others = _pairs(rotations, layer).flip(0).flatten()
        layers.append(torch.stack((own, others[place])))
    return SparseLayers(tuple(layers), is_complex)


def rotation_numbers(rotations: Rotations, angles: Tensor, phases: Tensor | None = None) -> Tensor:
    """Return the numbers of `rotation_layers`, `[L, 2, n]`; angles and phases as for `rotate`."""
    cos, sin = angles.cos(), angles.sin()
    factor = 1.0 if phases is None else torch.polar(torch.ones_like(phases), phases)
    own, other = torch.cat((cos, cos * factor), 1), torch.cat((-sin * factor, sin), 1)
    places = _places(rotations).to(angles.device)
    return torch.stack((own.gather(1, places), other.gather(1, places)), 1)


@cache
def _places(rotations: Rotations) -> Tensor:
    """Return where each unit is among the first units of a layer's pairs, followed by the second ones, `[L, n]`."""
    return torch.stack([_pairs(rotations, layer).flatten().argsort() for layer in rotations.layers])


def _pairs(rotations: Rotations, layer: Pairing) -> Tensor:
    """Return the first and the second units of a layer's pairs, `[2, n / 2]`."""
    return torch.cat(_split(torch.arange(rotations.units, device="cpu")[None], layer)).flatten(1)


def _plain(rows: Tensor, angles: Tensor, phases: Tensor | None, layers: tuple[Pairing, ...]) -> Tensor:
    for layer, cos, sin, factor in zip(layers, *_coefficients(angles, phases), strict=True):
        first, second = _split(rows, layer)
        second = second if factor is None else second * factor.view(-1, layer.distance)
        rows = _join(*_turn(first, second, cos, sin, layer), layer)
    return rows


class _Rotate(torch.autograd.Function):
    """The derivative is a function of the rows after the last layer, so it can be differentiated as it is."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, angles: Tensor, phases: Tensor | None, layers: tuple[Pairing, ...]) -> Tensor:
        rows = _plain(rows, angles, phases, layers)
        ctx.layers = layers
        ctx.save_for_backward(rows, angles, phases)
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        rows, angles, phases = ctx.saved_tensors
        by_angle: list[Tensor] = []
        by_phase: list[Tensor] = []
        each = list(zip(ctx.layers, *_coefficients(angles, phases), strict=True))
        for layer, cos, sin, factor in reversed(each):
            (a, b), (g_a, g_b) = _split(rows, layer), _split(gradient, layer)
            by_angle.append((g_b * a.conj() - g_a * b.conj()).real.sum(0).flatten())
            (a, b), (g_a, g_b) = _turn(a, b, cos, -sin, layer), _turn(g_a, g_b, cos, -sin, layer)
            if factor is not None:
                by_phase.append((g_b * b.conj()).imag.sum(0).flatten())
                back = factor.conj().view(-1, layer.distance)
                b, g_b = b * back, g_b * back
            rows, gradient = _join(a, b, layer), _join(g_a, g_b, layer)
        dphases = None if phases is None else torch.stack(by_phase[::-1])
        return gradient, torch.stack(by_angle[::-1]), dphases, None


def _coefficients(angles: Tensor, phases: Tensor | None) -> tuple[Iterable[Any], ...]:
    """Return cosines, sines and the factors e^(i p), or None, of each layer `[n / 2]`."""
    factors = [None] * len(angles) if phases is None else torch.polar(torch.ones_like(phases), phases)
    return angles.cos(), angles.sin(), factors


def _split(rows: Tensor, layer: Pairing) -> tuple[Tensor, Tensor]:
    """Return the pairs' first and second units, each `[B, n / (2 distance), distance]`."""
    rolled = rows.roll(-layer.shift, -1) if layer.shift else rows
    first, second = rolled.reshape(len(rows), -1, 2, layer.distance).unbind(2)
    return first, second


def _join(first: Tensor, second: Tensor, layer: Pairing) -> Tensor:
    rows = torch.stack((first, second), 2).flatten(1)
    return rows.roll(layer.shift, -1) if layer.shift else rows


def _turn(first: Tensor, second: Tensor, cos: Tensor, sin: Tensor, layer: Pairing) -> tuple[Tensor, Tensor]:
    cos, sin = cos.view(-1, layer.distance), sin.view(-1, layer.distance)
    return cos * first - sin * second, sin * first + cos * second
