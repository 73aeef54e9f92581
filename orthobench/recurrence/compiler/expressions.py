"""Expressions of one unit at one step: graphs without repeated nodes, for values and for their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary


class UnfitError(Exception):
    """A step cannot be compiled; the message gives the reason."""


class Term(NamedTuple):
    """A term of a sum.

    Attributes:
        kind: "product" of a node with a block `[n, n]` of a matrix; "input", rows of the inputs times a block of a
            matrix, or the rows as they are; or "vector", n numbers of a tensor, or its only number for all units.
        sign: 1 or -1.
        factor: the node or the rows.
        name: the matrix or the vector; None for rows as they are.
        row: the first row of the block.
        column: its first column, or that of the numbers; -1 for one number.
    """

    kind: str
    sign: int
    factor: Any
    name: str | None
    row: int
    column: int


class Node:
    """An operation and its arguments; nodes with the same operation and arguments are the same object.

    Leaves are numbers, states before the step, and sums, whose argument is a tuple of terms. The plan turns sums into
    the leaves `product`, `input` and `vector`. A gradient adds the leaves `gradient` of a state, `handed` by the phase
    that runs before, and `of value`, the gradient of what the second phase multiplies.

    All operations are of one unit but `mean`, the mean over the units of a row, which is the same for all of them. What
    is `fixed` has no gradient.
    """

    __slots__ = ("__weakref__", "args", "op")
    op: str
    args: tuple[Any, ...]
    _all: WeakValueDictionary[Any, Node] = WeakValueDictionary()

    def __new__(cls, op: str, *args: Any) -> Node:
        key = (op, *args)
        node = cls._all.get(key)
        if node is None:
            node = object.__new__(cls)
            node.op, node.args = op, args
            cls._all[key] = node
        return node

    @property
    def inner(self) -> tuple[Node, ...]:
        """The nodes from which it is computed, without those that are multiplied with matrices."""
        return tuple(each for each in self.args if isinstance(each, Node))

    def terms(self, kind: str) -> list[Term]:
        """Return the terms of a kind, of a sum or of a leaf that stands for one."""
        return [term for term in self.args[0] if term.kind == kind]

    @property
    def value(self) -> float | None:
        """The value of a number, or None."""
        return float(self.args[0]) if self.op == "number" else None


def number(value: float) -> Node:
    return Node("number", float(value))


ZERO, ONE = number(0), number(1)


def total(*terms: Term) -> Node:
    """Return a sum of terms."""
    return Node("sum", terms)


def add(a: Node, b: Node) -> Node:
    if a.value is not None and b.value is not None:
        return number(a.value + b.value)
    for one, other in ((a, b), (b, a)):
        if one is ZERO:
            return other
        if one.op == "neg":
            return subtract(other, one.args[0])
        if one.op == "sum" and other.op == "sum":
            return total(*one.args[0], *other.args[0])
        # Sums are joined also if something else was added in between, because they become one product with its input.
        if one.op == "sum" and other.op in ("add", "subtract") and other.args[0].op == "sum":
            return Node(other.op, total(*one.args[0], *other.args[0].args[0]), other.args[1])
        if one.op == "sum" and other.op == "add" and other.args[1].op == "sum":
            return Node("add", total(*one.args[0], *other.args[1].args[0]), other.args[0])
    return Node("add", a, b)


def subtract(a: Node, b: Node) -> Node:
    if a.value is not None and b.value is not None:
        return number(a.value - b.value)
    if b is ZERO:
        return a
    if a is ZERO:
        return negate(b)
    if b.op == "neg":
        return add(a, b.args[0])
    if a.op == "sum" and b.op == "sum":
        return add(a, negate(b))
    return Node("subtract", a, b)


def negate(a: Node) -> Node:
    if a.value is not None:
        return number(-a.value)
    if a.op == "sum":
        return total(*(term._replace(sign=-term.sign) for term in a.args[0]))
    if a.op == "subtract":
        return subtract(a.args[1], a.args[0])
    return a.args[0] if a.op == "neg" else Node("neg", a)


def multiply(a: Node, b: Node) -> Node:
    if a.value is not None and b.value is not None:
        return number(a.value * b.value)
    for one, other in ((a, b), (b, a)):
        if one.value in (0, 1, -1):
            return ZERO if one is ZERO else other if one is ONE else negate(other)
    if a.op == "neg":  # so that negations meet and vanish
        return negate(multiply(a.args[0], b))
    if b.op == "neg":
        return negate(multiply(a, b.args[0]))
    return Node("multiply", a, b)


def divide(a: Node, b: Node) -> Node:
    if b.value:
        return multiply(a, number(1 / b.value))
    return Node("divide", a, b)


def mean(a: Node) -> Node:
    parts = ordered([a], lambda node: node.op == "mean")
    is_same_for_all = all(node.op in ("mean", "number") or node.inner for node in parts)
    return a if is_same_for_all else Node("mean", a)


def select(condition: Node, yes: Node, no: Node) -> Node:
    return yes if yes is no else Node("select", condition, yes, no)


SIMPLIFYING: dict[str, Callable[..., Node]] = {
    "add": add,
    "subtract": subtract,
    "neg": negate,
    "multiply": multiply,
    "divide": divide,
    "select": select,
    "mean": mean,
}


def ordered(roots: Iterable[Node], stop: Callable[[Node], bool] = lambda node: False) -> list[Node]:
    """Return all nodes of some expressions, each after its arguments, without those behind a `stop`."""
    done: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in done:
            for each in () if stop(node) else node.inner:
                visit(each)
            done[node] = None

    for root in roots:
        visit(root)
    return list(done)


def replaced(roots: Iterable[Node], leaf: Callable[[Node], Node | None]) -> list[Node]:
    """Return expressions with nodes replaced by what `leaf` returns for them; None keeps a node."""
    roots = list(roots)
    new: dict[Node, Node] = {}
    for node in ordered(roots):
        if (own := leaf(node)) is not None:
            new[node] = own
        elif node.inner:
            args = [new[each] if isinstance(each, Node) else each for each in node.args]
            new[node] = SIMPLIFYING[node.op](*args) if node.op in SIMPLIFYING else Node(node.op, *args)
        else:
            new[node] = node
    return [new[root] for root in roots]
