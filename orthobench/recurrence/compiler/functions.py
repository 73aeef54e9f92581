"""Functions of single numbers, as torch names them, as expressions."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from orthobench.recurrence.compiler.expressions import (
    ONE,
    ZERO,
    Node,
    add,
    divide,
    multiply,
    negate,
    number,
    select,
    subtract,
)

COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_HUNDREDTH, _HALF, _MINUS_ONE, _TWENTY = number(0.01), number(0.5), number(-1), number(20)


class RefusedError(Exception):
    """A function has no kernel with these arguments; the message says which."""


def _scaled(x: Node, factor: Any) -> Node:
    return multiply(factor if isinstance(factor, Node) else number(factor), x)


def _power(x: Node, exponent: Node) -> Node:
    match exponent.value:
        case 2:
            return multiply(x, x)
        case 3:
            return multiply(multiply(x, x), x)
        case 0.5:
            return Node("sqrt", x)
        case -0.5:
            return divide(ONE, Node("sqrt", x))
        case -1:
            return divide(ONE, x)
    raise RefusedError("a power other than 2, 3, 0.5, -0.5 and -1 has no kernel")


def _division(a: Node, b: Node, rounding_mode: str | None = None) -> Node:
    if rounding_mode:
        raise RefusedError("a rounded division has no kernel")
    return divide(a, b)


@functools.cache
def share_at_bound(of_tensor: bool) -> float:
    """Return the part of its gradient that `torch.clamp` passes on at a bound, a number or a tensor.

    It is asked, because torch 2.14 changed it. The first call must not be inside an operation of torch.
    """
    x = torch.zeros((), requires_grad=True, device="cpu", dtype=torch.float32)
    result = torch.clamp(x, min=torch.zeros_like(x) if of_tensor else 0)
    return float(torch.autograd.grad(result, x)[0])


def _bounded(sign: str, x: Node, bound: Any) -> Node:
    if bound is None:
        return x
    share = number(share_at_bound(bound.value is None))
    at_bound = add(multiply(share, x), multiply(subtract(ONE, share), bound))
    return select(Node(sign, x, bound), bound, select(Node("==", x, bound), at_bound, x))


def _least(x: Node, low: Any) -> Node:
    return _bounded("<", x, low)


def _most(x: Node, high: Any) -> Node:
    return _bounded(">", x, high)


def _clamp(x: Node, low: Any = None, high: Any = None) -> Node:
    return _most(_least(x, low), high)


def _hard_tanh(x: Node, low: Node = _MINUS_ONE, high: Node = ONE) -> Node:
    # Not a clamp, because torch gives it no gradient at the bounds themselves.
    return select(Node("<=", x, low), low, select(Node(">=", x, high), high, x))


def _larger(a: Node, b: Node) -> Node:
    # The mean of equal numbers, because torch divides their gradient equally.
    mean = add(multiply(_HALF, a), multiply(_HALF, b))
    return select(Node(">", a, b), a, select(Node("<", a, b), b, mean))


def _smaller(a: Node, b: Node) -> Node:
    return negate(_larger(negate(a), negate(b)))


def _softplus(x: Node, beta: Node = ONE, threshold: Node = _TWENTY) -> Node:
    scaled = multiply(beta, x)
    value = divide(Node("softplus", scaled), beta)
    # From 20 on, torch's default, x is softplus(x) up to a rounding.
    is_exact = threshold.value is not None and threshold.value >= 20
    return value if is_exact else select(Node(">", scaled, threshold), x, value)


def _exponential(x: Node) -> Node:
    # A square, because the driver's function stays at e^88, and infinity shows that a cell diverges.
    root = Node("exp", multiply(_HALF, x))
    return multiply(root, root)


def _elu(x: Node, alpha: Node = ONE, scale: Node = ONE, input_scale: Node = ONE) -> Node:
    below = subtract(Node("exp", multiply(input_scale, select(Node(">", x, ZERO), ZERO, x))), ONE)
    return multiply(scale, select(Node(">", x, ZERO), x, multiply(alpha, below)))


def _gelu(x: Node, approximate: str = "none") -> Node:
    if approximate != "tanh":
        raise RefusedError("GELU by the error function has no kernel, only approximate='tanh'")
    inner = multiply(number(math.sqrt(2 / math.pi)), add(x, multiply(number(0.044715), multiply(multiply(x, x), x))))
    return multiply(multiply(number(0.5), x), add(ONE, Node("tanh", inner)))


def _compared(name: str) -> Callable[[Node, Node], Node]:
    """Return a comparison as a number, 1 or 0, because a step may multiply with it."""

    def compared(a: Node, b: Node) -> Node:
        if a.value is not None and b.value is not None:
            return number(getattr(operator, name)(a.value, b.value))
        return select(Node(COMPARISONS[name], a, b), ONE, ZERO)

    return compared


def _where(condition: Node, a: Node, b: Node) -> Node:
    if condition.value is not None:
        return a if condition.value else b
    is_comparison = condition.op == "select" and condition.args[1:] == (ONE, ZERO)
    return select(condition.args[0] if is_comparison else Node("!=", condition, ZERO), a, b)


def _unary(op: str) -> Callable[[Node], Node]:
    return lambda x: Node(op, x)


POINTWISE: dict[str, Callable[..., Node]] = {
    "add": lambda a, b, alpha=1: add(a, _scaled(b, alpha)),
    "sub": lambda a, b, alpha=1: subtract(a, _scaled(b, alpha)),
    "rsub": lambda a, b, alpha=1: subtract(b, _scaled(a, alpha)),
    "mul": multiply,
    "div": _division,
    "neg": negate,
    "reciprocal": lambda x: divide(ONE, x),
    "square": lambda x: multiply(x, x),
    "pow": _power,
    "rsqrt": lambda x: divide(ONE, Node("sqrt", x)),
    **{name: _unary(name) for name in ("sigmoid", "tanh", "log", "sin", "cos", "sqrt", "abs", "relu", "sign")},
    "exp": _exponential,
    "softplus": _softplus,
    "leaky_relu": lambda x, slope=_HUNDREDTH: select(Node(">", x, ZERO), x, multiply(slope, x)),
    "elu": _elu,
    "silu": lambda x: multiply(x, Node("sigmoid", x)),
    "gelu": _gelu,
    "clamp": _clamp,
    "clamp_min": _least,
    "clamp_max": _most,
    "hardtanh": _hard_tanh,
    "maximum": _larger,
    "minimum": _smaller,
    "where": _where,
    **{name: _compared(name) for name in COMPARISONS},
    "lerp": lambda a, b, weight: add(a, multiply(weight, subtract(b, a))),
    "addcmul": lambda a, b, c, value=1: add(a, _scaled(multiply(b, c), value)),
}  # fmt: skip
