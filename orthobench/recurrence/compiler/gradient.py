"""The gradient of a planned step, and which of its values are saved for it."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from orthobench.recurrence.compiler.expressions import (
    ONE,
    ZERO,
    Node,
    add,
    divide,
    mean,
    multiply,
    negate,
    number,
    ordered,
    select,
    subtract,
)
from orthobench.recurrence.compiler.plan import Plan

FUNCTIONS = frozenset({"sigmoid", "tanh", "exp", "log", "sin", "cos", "sqrt", "softplus"})
"""What takes about as long as a store and a load."""

_SAVE, _LOAD, _FUNCTION, _ARITHMETIC = 200, 50, 70, 2
"""The cost of saving a number for the backward pass, of loading a state, and of computing a value again."""
_NEVER = 1_000_000

_NUMBERS = ("number", "constant")
_FREE = frozenset({*_NUMBERS, "vector", "mean", "gradient", "handed", "of value"})
_COMPARISONS = frozenset({"<", ">", "<=", ">=", "==", "!="})


def _signed(g: Node, sign: Node) -> Node:
    """Return a gradient times a sign, of which 0 stays 0 and does not become -0 where nothing passes a ReLU."""
    if g.op != "select":
        return multiply(g, sign)
    condition, *branches = g.args
    return select(condition, *(multiply(each, sign) for each in branches))


_DERIVATIVES: dict[str, Callable[[Node, Node], tuple[Node, ...]]] = {
    "add": lambda node, g: (g, g),
    "subtract": lambda node, g: (g, negate(g)),
    "neg": lambda node, g: (negate(g),),
    "multiply": lambda node, g: (multiply(g, node.args[1]), multiply(g, node.args[0])),
    "divide": lambda node, g: (divide(g, node.args[1]), negate(divide(multiply(g, node), node.args[1]))),
    "sigmoid": lambda node, g: (multiply(multiply(g, node), subtract(ONE, node)),),
    "tanh": lambda node, g: (multiply(g, Node("tangent_slope", node)),),
    "exp": lambda node, g: (multiply(g, node),),
    "log": lambda node, g: (divide(g, node.args[0]),),
    "sin": lambda node, g: (multiply(g, Node("cos", node.args[0])),),
    "cos": lambda node, g: (negate(multiply(g, Node("sin", node.args[0]))),),
    "sqrt": lambda node, g: (divide(multiply(g, number(0.5)), node),),
    "softplus": lambda node, g: (multiply(g, Node("sigmoid", node.args[0])),),
    "relu": lambda node, g: (select(Node(">", node, ZERO), g, ZERO),),
    "abs": lambda node, g: (_signed(g, Node("sign", node.args[0])),),
    "mean": lambda node, g: (mean(g),),
    "select": lambda node, g: (ZERO, select(node.args[0], g, ZERO), select(node.args[0], ZERO, g)),
}
"""The gradients of an operation's arguments, from the operation and its own gradient; none for comparisons.

A mean over the units passes on the mean of its gradients: the sum of all n of them, to each unit one part in n."""


@dataclass(eq=False)
class Stage:
    """What a phase computes backward: the gradients of leaves by what they are, and of states before the step."""

    inputs: dict[Node, Node] = field(default_factory=dict)
    own: dict[Node, Node] = field(default_factory=dict)
    vectors: dict[Node, Node] = field(default_factory=dict)
    states: dict[int, Node] = field(default_factory=dict)

    @property
    def roots(self) -> list[Node]:
        return [node for part in (self.inputs, self.own, self.vectors, self.states) for node in part.values()]


@dataclass(eq=False)
class Gradient:
    """The gradient of a step.

    Attributes:
        stages: what each phase computes; backward, the last one runs first.
        handed: what the last phase hands to the first one.
        whole: the gradients of the next states by their numbers, where they are more than what the driver passes.
    """

    stages: list[Stage]
    handed: list[Node] = field(default_factory=list)
    whole: dict[int, Node] = field(default_factory=dict)

    def roots(self, phase: int) -> list[Node]:
        is_last = phase == len(self.stages) - 1
        return [*self.stages[phase].roots, *(self.handed if is_last else [])]


def differentiate(plan: Plan) -> Gradient:
    """Return the gradient of a planned step, by the chain rule from the next states to the leaves."""
    nodes, last = ordered(plan.roots), len(plan.phases) - 1
    result = Gradient([Stage() for _ in plan.phases])
    phase = _phases_backward(plan, nodes)
    parts: dict[Node, Node] = defaultdict(lambda: ZERO)
    early: dict[Node, Node] = {}
    trained, whole = _with_gradient(nodes), _whole(plan, nodes)
    for number_, state in enumerate(plan.states):
        if plan.phase_of[number_] == last:
            parts[state] = add(parts[state], Node("gradient", number_))
    for at in range(last, -1, -1):
        if at < last:
            # A gradient that is not complete in the last phase goes on to the first one.
            for node, part in early.items():
                result.handed.append(part)
                parts[node] = Node("handed", len(result.handed) - 1)
            if plan.value is not None:
                parts[plan.value] = add(parts[plan.value], Node("of value"))
            for number_, state in enumerate(plan.states):
                if plan.phase_of[number_] < last:
                    parts[state] = add(parts[state], Node("gradient", number_))
        for node in reversed(nodes):
            g = parts.get(node, ZERO)
            if g is ZERO or node not in trained:
                continue
            if phase[node] < at and not _is_added(plan, node):
                early[node], parts[node] = g, ZERO
                continue
            if node in plan.states:
                same = [k for k, each in enumerate(plan.states) if each is node]
                result.whole |= {k: g for k in same if g is not Node("gradient", k)}
            _leaf_gradient(result, at, node, g)
            parts[node] = ZERO
            gradients = _DERIVATIVES[node.op](node, g) if node.inner and node.op in _DERIVATIVES else ()
            for each, part in zip(node.inner, gradients, strict=bool(gradients)):
                if each in trained:
                    join = _joined if each.inner else add
                    parts[each] = join(parts[each], _in_order(part, whole))
    for stage in result.stages:
        stage.inputs = {node: _from_own(g, stage.own.values()) for node, g in stage.inputs.items()}
    return result


def _whole(plan: Plan, nodes: Sequence[Node]) -> list[Node]:
    """Return the products of a step that stay one factor of a gradient: those that are used again."""
    users = Counter(each for node in nodes for each in node.inner)
    return [node for node in nodes if node.op == "multiply" and (users[node] > 1 or node is plan.value)]


def _in_order(part: Node, whole: Sequence[Node]) -> Node:
    """Return a product with its gradient first, then the cell's numbers, and then the other factors.

    More gradients then begin with the same product, which is computed once. Two factors whose product is `whole` become
    one. Stored results depend on this order.
    """
    if part.op == "neg":
        return negate(_in_order(part.args[0], whole))
    first, *parts = _factors(part)
    others: list[Node] = []
    for each in parts:
        factors = _factors(each)
        is_one = each in whole or not any(factor.op in _NUMBERS for factor in factors)
        others += [each] if is_one else factors
    for one, other in itertools.combinations(others, 2):
        product = next((node for node in whole if set(node.args) == {one, other}), None)
        if product is not None and {one, other} <= set(others):
            others[others.index(one)] = product
            others.remove(other)
    others.sort(key=lambda node: node.op not in _NUMBERS)
    return functools.reduce(multiply, others, first)


def _factors(node: Node) -> list[Node]:
    return [*_factors(node.args[0]), node.args[1]] if node.op == "multiply" else [node]


def _from_own(g: Node, own: Iterable[Node]) -> Node:
    """Return a gradient as a multiple of that of the phase's own product, which is computed anyway, if it is one."""
    factors = Counter(_factors(g))
    for each in own:
        part = Counter(_factors(each))
        if part <= factors:
            return functools.reduce(multiply, (factors - part).elements(), each)
    return g


def _joined(one: Node, other: Node) -> Node:
    """Return a sum of gradients. g a + g b is g (a + b), because it is going to be multiplied."""
    products = [each.args[0] if each.op == "neg" else each for each in (one, other)]
    if any(each.op != "multiply" for each in products) or products[0].args[0] is not products[1].args[0]:
        return add(one, other)
    signed = zip((one, other), products, strict=True)
    rest = [negate(product.args[1]) if each.op == "neg" else product.args[1] for each, product in signed]
    return multiply(products[0].args[0], add(*rest))


def _leaf_gradient(result: Gradient, at: int, node: Node, g: Node) -> None:
    stage = result.stages[at]
    if node.op == "state":
        stage.states[node.args[0]] = g
    elif node.op == "vector":
        stage.vectors[node] = g
    elif node.op == "input" or (node.op == "product" and node.terms("input")):
        stage.inputs[node] = g
    elif node.op == "product":
        stage.own[node] = g


def _is_added(plan: Plan, node: Node) -> bool:
    """Return whether each phase may have a part of a leaf's gradient, because the driver adds them up.

    The gradient of a state that the first phase computes is in the driver's memory until the first phase has read it.
    """
    last = len(plan.phases) - 1
    return node.op == "vector" or (node.op == "state" and plan.phase_of[node.args[0]] == last)


def _phases_backward(plan: Plan, nodes: list[Node]) -> dict[Node, int]:
    """Return in which phase the gradient of each node is complete."""
    last = len(plan.phases) - 1
    phase: dict[Node, int] = {}
    users: dict[Node, list[Node]] = defaultdict(list)
    for node in nodes:
        for each in node.inner:
            users[each].append(node)
    first = {plan.value, *(state for state, at in zip(plan.states, plan.phase_of, strict=True) if at < last)}
    for node in reversed(nodes):
        is_first = last and (node in first or node in plan.phases[0].own)
        phase[node] = 0 if is_first else min((phase[user] for user in users[node]), default=last)
    return phase


def _with_gradient(nodes: list[Node]) -> set[Node]:
    """Return the nodes through which a gradient reaches a leaf."""
    result: set[Node] = set()
    for node in nodes:
        if node.op in ("state", "product", "input", "vector") or (node.op in _DERIVATIVES and result & set(node.inner)):
            result.add(node)
    return result


# -------------------------------------------------------------------- what to save


def saved_for(plan: Plan, gradient: Gradient) -> tuple[list[Node], set[Node]]:
    """Return the values that the forward pass saves, and the next states that the backward pass loads again.

    They are a minimum cut of the graph from what the forward pass has to what the backward pass needs: a value is
    saved, or computed again from its arguments.
    """
    forward = set(ordered(plan.roots))
    roots = [root for at in range(len(plan.phases)) for root in gradient.roots(at)]
    roots += [] if plan.value is None else [plan.value]  # again, for dL/dW
    wanted = [node for node in ordered(roots, lambda node: node in forward) if node in forward and node.op not in _FREE]
    nodes = ordered(wanted)
    before, after = {node: 2 * k + 2 for k, node in enumerate(nodes)}, {node: 2 * k + 3 for k, node in enumerate(nodes)}
    edges: dict[tuple[int, int], int] = {}
    for node in nodes:
        save = _LOAD if node.op == "state" or node in plan.states else _NEVER if node.op in _COMPARISONS else _SAVE
        again = _FUNCTION if node.op in FUNCTIONS else _ARITHMETIC
        if node.op in ("state", "product", "input"):
            again = _NEVER
        if node.op in _FREE:
            save = again = 0
        edges[0, before[node]], edges[before[node], after[node]] = again, save
        edges |= {(after[each], before[node]): _NEVER for each in node.inner}
    edges |= {(after[node], 1): _NEVER for node in wanted}
    reached = _reached(edges, 2 * len(nodes) + 2)
    cut = [node for node in nodes if before[node] in reached and after[node] not in reached and node.op not in _FREE]
    loaded = {node for node in cut if node in plan.states and node.op != "state"}
    return [node for node in cut if node.op != "state" and node not in loaded], loaded


def _reached(edges: dict[tuple[int, int], int], size: int) -> set[int]:
    """Return what node 0 reaches behind a maximum flow to node 1."""
    rows, columns = np.array(list(edges)).reshape(-1, 2).T
    capacity = sparse.csr_array((np.array(list(edges.values()), np.int32), (rows, columns)), (size, size))
    left = sparse.csr_array(capacity - csgraph.maximum_flow(capacity, 0, 1).flow)
    left.eliminate_zeros()
    return set(csgraph.breadth_first_order(left, 0, return_predecessors=False).tolist())
