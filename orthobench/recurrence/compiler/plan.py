"""What a recorded step becomes in the driver of `cpu/cell.h`: its products, inputs and vectors, and their phases."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orthobench.recurrence.compiler.expressions import ZERO, Node, Term, UnfitError, add, ordered, replaced
from orthobench.recurrence.compiler.trace import Step

PRODUCTS, ALONE, INPUTS, VECTORS, SAVED, KEPT, MEANS, STATES = 4, 4, 8, 20, 8, 24, 32, 2
"""What the driver has room for: in a phase products and inputs that no product takes; in all, the rest."""


@dataclass(eq=False)
class PlannedPhase:
    """A phase: leaves of expressions, each with the terms of what it stands for.

    Attributes:
        own: the products without an input, as `product` nodes.
        shared: the products with one.
        alone: the inputs that no product takes, as `input` nodes.
        reads: what the products multiply, as `enum reads` names it.
    """

    own: list[Node]
    shared: list[Node]
    alone: list[Node]
    reads: str = "BEFORE"

    @property
    def products(self) -> list[Node]:
        return [*self.own, *self.shared]

    @property
    def inputs(self) -> list[Node]:
        return [*self.shared, *self.alone]


@dataclass(eq=False)
class Plan:
    """A cell for the driver.

    Attributes:
        states: the next states.
        phase_of: the phase that computes each of them.
        vectors: parameters of the units, as `vector` nodes.
        value: what the second phase multiplies, if it reads VALUE.
        level: for each node the phase that computes it.
    """

    states: list[Node]
    phase_of: list[int]
    phases: list[PlannedPhase]
    vectors: list[Node]
    value: Node | None
    level: dict[Node, int]

    @property
    def inputs(self) -> list[Node]:
        return [node for phase in self.phases for node in phase.inputs]

    @property
    def roots(self) -> list[Node]:
        return self.states if self.value is None else [*self.states, self.value]

    @property
    def reads_both(self) -> bool:
        return self.phases[0].reads == "BOTH_BEFORE"


def plan(step: Step, in_order: bool = False) -> Plan:
    """Return the plan of a step.

    Args:
        in_order: whether the products have the order of the matrix's columns. One without input, which would be the
            first of its phase, then has a phase of its own behind the others.

    Raises:
        UnfitError: the driver cannot run it.
    """
    if len(step.states) > STATES:
        raise UnfitError(f"{len(step.states)} states, and the loops carry {STATES}")
    states = _with_leaves(step.states)
    nodes = _everything(states)
    products = [node for node in nodes if node.op == "product"]
    second = [node for node in products if any(term.factor.op != "state" for term in node.terms("product"))]
    value = _multiplied(second)
    if in_order and value is None:
        first = min((_column(node) for node in products if node.terms("input")), default=0)
        second = [node for node in products if _column(node) > first and not node.terms("input")]
    multiplied = {term.factor.args[0] for node in products if node not in second for term in node.terms("product")}
    reads = ["BOTH_BEFORE" if 1 in multiplied else "BEFORE"]
    phase_of = [0] * len(states)
    if value is not None and reads == ["BOTH_BEFORE"]:
        raise UnfitError("products of both states, and then one of a third value")
    if value is not None:
        # The loop has stored the second state when the second phase multiplies it. All other states are complete in the
        # last phase, because the gradient of the products that read them arrives there.
        is_stored = len(states) == STATES and value is states[1] and value is not states[0]
        reads.append("SECOND_NOW" if is_stored else "VALUE")
        phase_of = [1, 0] if is_stored else [1] * len(states)
        value = None if is_stored else value
    elif second:
        reads.append("BEFORE")
        phase_of = [1] * len(states)
    level: dict[Node, int] = {}
    for node in nodes:
        level[node] = max([int(node in second), *(level[each] for each in node.inner)])
    phases = [PlannedPhase([], [], [], each) for each in reads]
    for node in products:
        phase = phases[level[node]]
        (phase.shared if node.terms("input") else phase.own).append(node)
    users: dict[Node, list[Node]] = defaultdict(list)
    for node in nodes:
        for each in node.inner:
            users[each].append(node)
    for node in nodes:
        if node.op == "input":
            is_late = len(phases) > 1 and node is not value and all(level[user] for user in users[node])
            level[node] = int(is_late)
            phases[level[node]].alone.append(node)
    for phase in phases:
        for part in (phase.own, phase.shared, phase.alone):
            part.sort(key=_column)
    vectors = [node for node in nodes if node.op == "vector"]
    result = Plan(states, phase_of, phases, vectors, value, level)
    _check(result)
    return result


def _column(node: Node) -> int:
    """Return the first column of a product's matrix, or of an input, because neighbours are read at once."""
    term: Term = node.args[0][0]
    return term.factor[1] if term.kind == "input" and term.name is None else term.column


def _check(planned: Plan) -> None:
    for phase in planned.phases:
        if len(phase.products) > PRODUCTS:
            raise UnfitError(f"{len(phase.products)} products that follow no other, and the loops have {PRODUCTS}")
        if len(phase.alone) > ALONE:
            raise UnfitError(f"{len(phase.alone)} inputs next to those of products, and the loops have {ALONE}")
    if len(planned.inputs) > INPUTS:
        raise UnfitError(f"{len(planned.inputs)} inputs, and the loops have {INPUTS}")
    if len(planned.vectors) > VECTORS:
        raise UnfitError(f"{len(planned.vectors)} vectors, and the loops have {VECTORS}")
    if not planned.inputs:
        raise UnfitError("no input reaches the states")


def _multiplied(second: Sequence[Node]) -> Node | None:
    """Return what the products of the second phase multiply, or None without any.

    Raises:
        UnfitError: these are several values, or one that takes a product of the second phase.
    """
    values: list[Node] = list(dict.fromkeys(term.factor for node in second for term in node.terms("product")))
    if not values:
        return None
    if any(node in second for node in ordered(values)):
        raise UnfitError("three products that follow one another in a step")
    if len(values) > 1:
        raise UnfitError(f"{len(values)} values that are multiplied in the second phase, and the loops have one")
    return values[0]


def _everything(roots: Sequence[Node]) -> list[Node]:
    """Return the nodes of expressions in order, also those that are multiplied."""
    done: dict[Node, None] = {}

    def visit(some: Sequence[Node]) -> None:
        for node in ordered(some):
            if node not in done:
                visit([term.factor for term in node.terms("product")] if node.op in ("sum", "product") else [])
                done[node] = None

    visit(roots)
    return list(done)


# -------------------------------------------------------------------- sums


def _with_leaves(states: Sequence[Node]) -> list[Node]:
    """Replace sums by leaves: products, each with its input if it has one, inputs alone and vectors."""
    by_products: dict[frozenset[Any], list[Node]] = defaultdict(list)
    for node in _everything(states):
        if node.op == "sum":
            by_products[_counted(node.terms("product"))].append(node)

    @functools.cache
    def written(node: Node) -> Node:
        products, inputs, vectors = map(node.terms, ("product", "input", "vector"))
        if not products:
            return _leaf("input" if inputs else "vector", inputs, vectors)
        alike = by_products[_counted(products)]
        products = [term._replace(factor=replaced([term.factor], leaf)[0]) for term in products]
        early = [term for term in products if term.factor.op == "state"]
        late = [term for term in products if term.factor.op != "state"]
        if early and late:  # the product that comes later takes the input
            return add(_leaf("product", early), _sum(late, inputs, vectors))
        if all(_counted(each.terms("input")) == _counted(inputs) for each in alike):
            # Sums that differ in their vectors alone share the product, with the vectors that all of them have.
            common = functools.reduce(operator.and_, (Counter(each.terms("vector")) for each in alike))
            rest = list((Counter(vectors) - common).elements())
            product = _sum(products, inputs, list(common.elements()))
            return add(product, _leaf("vector", rest)) if rest else product
        return add(_leaf("product", products), _sum([], inputs, vectors))

    def leaf(node: Node) -> Node | None:
        return written(node) if node.op == "sum" else None

    return replaced(states, leaf)


def _counted(terms: Sequence[Term]) -> frozenset[tuple[Term, int]]:
    return frozenset(Counter(terms).items())


def _leaf(kind: str, *terms: list[Term]) -> Node:
    return Node(kind, tuple(itertools.chain(*terms)))


def _sum(products: list[Term], inputs: list[Term], vectors: list[Term]) -> Node:
    """Return the leaves for a sum: vectors are part of an input, and an input of a product."""
    if inputs:
        return _leaf("product" if products else "input", products, inputs, vectors)
    if products and vectors:
        return add(_leaf("product", products), _leaf("vector", vectors))
    return _leaf("product", products) if products else _leaf("vector", vectors) if vectors else ZERO
