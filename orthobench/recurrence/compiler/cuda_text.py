"""A planned step and its gradient in CUDA C++: a struct for each direction of a cell, see `cuda/cell.cuh`.

The texts of expressions are those of `text`, whose words `cuda/derived.cuh` defines for one number. A gradient is a sum
of products of one gradient with values that the forward pass has saved. Their part without the gradient is a factor,
which the kernels compute while messages travel.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orthobench.recurrence.compiler.expressions import (
    ONE,
    SIMPLIFYING,
    ZERO,
    Node,
    UnfitError,
    add,
    divide,
    multiply,
    negate,
    number,
    ordered,
    replaced,
)
from orthobench.recurrence.compiler.gradient import FUNCTIONS, Gradient, differentiate, saved_for
from orthobench.recurrence.compiler.plan import Plan, PlannedPhase
from orthobench.recurrence.compiler.text import COMPARISONS, Body, is_number, leaves

HEAD = '#include "cuda/derived.cuh"\n'
VECTORS = 4
"""Vectors of the structure Arguments in `cell.cuh`."""


def written(plan: Plan, name: str) -> str:
    """Return the structs `{name}Forward` and `{name}Backward`.

    The backward kernel's `saved` has the gradients of the products without input, and then what the second phase
    multiplies, if it reads VALUE. The forward kernel's ends with the second state, if a product reads it. If the kernel
    saves nothing, the backward kernel reads the first state.

    Raises:
        UnfitError: the kernels cannot run it.
    """
    if any(node.op == "mean" for node in ordered(plan.roots)):
        raise UnfitError("the CUDA kernels have no means over the units")
    if not all(phase.products for phase in plan.phases):
        raise UnfitError("the CUDA kernels are for cells whose state is multiplied with a matrix")
    if len(plan.vectors) > VECTORS:
        raise UnfitError(f"{len(plan.vectors)} vectors, and the CUDA kernels have {VECTORS}")
    joined = _joined(plan)
    gradient = differentiate(joined)
    stored = _stored(joined, gradient)
    return _forward(plan, joined, stored, name) + "\n" + _backward(plan, joined, gradient, stored, name)


def _joined(plan: Plan) -> Plan:
    """Return a plan in one phase, with the products in the weight's order, if none needs the results of others."""
    if any(phase.reads in ("VALUE", "SECOND_NOW") for phase in plan.phases):
        return plan
    products = [node for phase in plan.phases for node in phase.products]
    phase = PlannedPhase([], products, [], plan.phases[0].reads)
    return replace(plan, phases=[phase], phase_of=[0] * len(plan.states))


def _stored(plan: Plan, gradient: Gradient) -> list[Node]:
    """Return what the backward kernel reads at each step."""
    saved, loaded = saved_for(plan, gradient)
    values = {*saved, *loaded}
    needed = [root for phase in range(len(plan.phases)) for root in gradient.roots(phase)]
    needed += [] if plan.value is None else [plan.value]
    before = [node for node in ordered(needed, lambda node: node in values) if node.op == "state"]
    # dL/dW needs the second state at all steps if a product reads it.
    is_read = plan.reads_both or any(phase.reads == "SECOND_NOW" for phase in plan.phases)
    last = [plan.states[1]] if is_read else []
    return [*(node for node in (*saved, *before, *loaded) if node not in last), *last]


def _sizes(plan: Plan, **more: int) -> dict[str, int]:
    return {"PHASES": len(plan.phases), "STATES": len(plan.states), "VECTORS": len(plan.vectors), **more}


def _struct(name: str, numbers: Mapping[str, int], prepared: Sequence[str], steps: Sequence[Sequence[str]]) -> str:
    constants = ", ".join(f"{key} = {value}" for key, value in numbers.items() if value or key == "INPUTS")
    lines = [f"struct {name} : Cell {{", f"    static constexpr int {constants};", ""]
    if prepared:
        arguments = "const float *input, const float *vector, const Constants &constants, float *factor"
        lines.append(f"    static MEMBER void prepare({arguments}) {{")
        lines += [*(f"        {line}" for line in prepared), "    }", ""]
    lines.append("    template <int PHASE> static MEMBER void step(const Unit &u) {")
    if len(steps) == 1:
        lines += [f"        {line}" for line in steps[0]]
    else:
        for start, body in zip(("if constexpr (PHASE == 0) {", "} else {"), steps, strict=True):
            lines += [f"        {start}", *(f"            {line}" for line in body)]
        lines.append("        }")
    return "\n".join([*lines, "    }", "};", ""])


# -------------------------------------------------------------------- forward


def _forward(plan: Plan, joined: Plan, stored: list[Node], name: str) -> str:
    place = {node: k for k, node in enumerate(plan.inputs)}
    saved = [] if stored == joined.states[:1] else stored
    count, phases, kept = len(joined.states), joined.phases, _kept(joined, saved)
    always = leaves(joined, "u.") | {node: f"u.input[{k}]" for node, k in place.items() if node.op == "input"}
    steps = []
    for at, phase in enumerate(phases):
        products = {node: f"u.product[{k}]" for k, node in enumerate(phase.products)}
        available = {**always, **products}
        available |= {node: f"({text} + u.input[{place[node]}])" for node, text in products.items() if node in place}
        for k, (state, own) in enumerate(zip(joined.states, joined.phase_of, strict=True)):
            available[Node("state", k) if own >= at else state] = f"u.state[{k}]"
        if at == len(phases) - 1:
            available |= {node: f"u.state[{count + k}]" for k, node in enumerate(kept)}
            ends = [(f"u.output[{1 + k}]", node) for k, node in enumerate(saved)]
        else:
            multiplied = joined.states[1] if joined.value is None else joined.value
            ends = [*((f"u.state[{count + k}]", node) for k, node in enumerate(kept)), ("u.value[0]", multiplied)]
        states = [(k, joined.states[k]) for k, own in enumerate(joined.phase_of) if own == at]
        body = _body(available, ends, states)
        if at == len(phases) - 1:
            body.lines.append("u.output[0] = u.value[0] = u.state[0];")
            body.lines += ["u.value[1] = u.state[1];"] if joined.reads_both else []
        steps.append(body.lines)
    sources = 2 if joined.reads_both else 1
    numbers = _sizes(joined, VALUES=sources, PRODUCTS=len(phases[0].products), INPUTS=len(place), OUTPUTS=1)
    numbers |= {"SAVED": len(saved), "KEPT": len(kept)}
    if len(phases) > 1:
        numbers |= {"VALUES_2": 1, "PRODUCTS_2": len(phases[1].products), "ROW_2": len(phases[0].products)}
    return _struct(f"{name}Forward", numbers, [], steps)


def _kept(plan: Plan, saved: Sequence[Node]) -> list[Node]:
    """Return what the first phase hands to the second, which also writes all that is saved."""
    if len(plan.phases) == 1:
        return []

    there = [state for state, at in zip(plan.states, plan.phase_of, strict=True) if not at]

    def is_kept(node: Node) -> bool:
        if node.op == "state":  # before the step
            return not plan.phase_of[node.args[0]]
        is_dear = node.op in FUNCTIONS or node.op == "product" or node in saved
        return not plan.level[node] and is_dear and node not in there

    roots = [*saved, *plan.states]
    return [node for node in ordered(roots, lambda node: node in there or is_kept(node)) if is_kept(node)]


def _body(available: Mapping[Node, str], ends: Iterable[tuple[str, Node]], states: Iterable[tuple[int, Node]]) -> Body:
    """Return the body that computes some numbers, and then replaces states."""
    ends, states = list(ends), list(states)
    body = Body(available, [node for _, node in (*ends, *states)], {})
    for target, node in ends:
        body.assign(target, node)
    names = [body.named(node) for _, node in states]  # a state may be read after another one is replaced
    body.lines += [f"u.state[{k}] = {text};" for (k, _), text in zip(states, names, strict=True)]
    return body


# -------------------------------------------------------------------- backward


def _backward(plan: Plan, joined: Plan, gradient: Gradient, stored: Sequence[Node], name: str) -> str:
    """Return the struct of the backward pass, whose states are gradients.

    Each phase computes what it needs from the gradients of the states, so that nothing is kept between them.
    """
    count, phases, sources = len(joined.states), joined.phases, 2 if joined.reads_both else 1
    handed = {Node("handed", k): node for k, node in enumerate(gradient.handed)}
    factors = _Factors(stored)

    def whole(part: str, leaf: Node | int) -> Node:
        parts = [getattr(stage, part).get(leaf, ZERO) for stage in gradient.stages]
        return factors.taken_out(replaced([functools.reduce(add, parts)], handed.get)[0])

    own = [node for phase in plan.phases for node in phase.own]
    of_leaf = {node: whole("inputs", node) for node in plan.inputs} | {node: whole("own", node) for node in own}
    values = [[(f"u.value[{k}]", of_leaf[node]) for k, node in enumerate(phase.products)] for phase in phases]
    ends = [(f"u.output[{k}]", g) for k, g in enumerate(of_leaf.values())]
    ends += [] if joined.value is None else [(f"u.output[{len(of_leaf)}]", joined.value)]
    ends += values[0]
    sums = [(k, whole("vectors", node)) for k, node in enumerate(joined.vectors)]
    ends += [(f"u.sum[{k}]", add(Node("sum of", k), g)) for k, g in sums if g is not ZERO]
    of_states = [replaced([gradient.whole.get(k, Node("gradient", k))], handed.get)[0] for k in range(count)]
    ends += [(f"u.trace[{k}]", factors.taken_out(g)) for k, g in enumerate(of_states)]
    states = [(k, whole("states", k)) for k in range(count)]
    available = leaves(joined, "u.") | {node: f"u.input[{k}]" for k, node in enumerate(stored)}
    available |= {node: f"u.factor[{k}]" for k, node in enumerate(factors.leaves)}
    available |= {Node("gradient", k): f"u.state[{k}]" for k in range(count)}
    available |= {Node("sum of", k): f"u.sum[{k}]" for k in range(len(joined.vectors))}
    available[Node("of value")] = "u.product[0]"
    last = _body(available, ends, states).lines
    arrived = [f"u.state[0] += u.input[{len(stored)}] + u.product[0];"]
    arrived += ["u.state[1] += u.product[1];"] if joined.reads_both else []
    steps = [[*arrived, *last]]
    if len(phases) > 1:
        also = ["u.state[1] += u.product[0];"] if joined.value is None else []
        steps = [[*arrived, *_body(available, values[1], ()).lines], [*also, *last]]
    numbers = _sizes(joined, VALUES=len(values[0]), PRODUCTS=sources, INPUTS=len(stored), SECOND=1)
    numbers |= {"OUTPUTS": len(plan.inputs), "SAVED": len(own) + (joined.value is not None)}
    numbers |= {"FACTORS": len(factors.leaves), "SUMS": len(joined.vectors), "TRACED": count}
    if len(phases) > 1:
        numbers |= {"VALUES_2": len(values[1]), "PRODUCTS_2": 1, "ROW_2": len(values[0])}
    given = leaves(joined, "") | {node: f"input[{k}]" for k, node in enumerate(stored)}
    prepared = _body(given, ((f"factor[{k}]", node) for k, node in enumerate(factors.leaves.values())), ())
    return _struct(f"{name}Backward", numbers, prepared.lines, steps)


class _Factors:
    """Takes what needs no gradient out of expressions that are linear in gradients.

    Args:
        given: what is no factor, because the kernel reads it.

    Attributes:
        leaves: what stands for the factors, and what they are.
    """

    def __init__(self, given: Sequence[Node]) -> None:
        self._given = given
        self.leaves: dict[Node, Node] = {}
        self._known: dict[Node, Node] = {}

    def taken_out(self, node: Node) -> Node:
        """Return an expression with leaves in place of its factors; one without gradient stays as it is."""
        return self._rest(node) if _has_gradient(node) else node

    def _rest(self, node: Node) -> Node:
        if node not in self._known:
            parts = _parts(node)
            (one,) = [each for each in parts if _has_gradient(each)]
            if len(parts) > 1:
                factor = functools.reduce(multiply, (each for each in parts if each is not one))
                result = multiply(self._rest(one), self._factor(factor))
            elif node.inner:
                args = (self._rest(each) if _has_gradient(each) else self._factor(each) for each in node.inner)
                result = SIMPLIFYING[node.op](*args)
            else:
                result = node
            self._known[node] = result
        return self._known[node]

    def _factor(self, node: Node) -> Node:
        if node in self._given or not node.inner or is_number(node):
            return node
        if node.op == "neg":
            return negate(self._factor(node.args[0]))
        if node.op in COMPARISONS:
            return Node(node.op, *map(self._factor, node.args))
        leaf = next((leaf for leaf, each in self.leaves.items() if each is node), Node("factor", len(self.leaves)))
        self.leaves[leaf] = node
        return leaf


def _has_gradient(node: Node) -> bool:
    return any(each.op in ("gradient", "of value") for each in ordered([node]))


def _parts(node: Node) -> list[Node]:
    """Return the factors of a product, of which a division is one by a reciprocal."""
    if node.op == "multiply":
        return [*_parts(node.args[0]), *_parts(node.args[1])]
    if node.op == "neg":
        return [*_parts(node.args[0]), number(-1)]
    if node.op == "divide":
        return [*_parts(node.args[0]), divide(ONE, node.args[1])]
    return [node]
