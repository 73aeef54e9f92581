"""A planned step and its gradient in C: a `struct cell` for the driver of `cpu/cell.h`, and its phases' functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orthobench.recurrence.compiler.expressions import Node, UnfitError, ordered
from orthobench.recurrence.compiler.gradient import FUNCTIONS, Gradient, differentiate, saved_for
from orthobench.recurrence.compiler.plan import KEPT, MEANS, SAVED, Plan

VERSION = 5
"""The version of the texts; it changes whenever a cell's numbers may."""

HEAD = '#include "cell.h"\n#include "functions.h"\n'

_CALLS = {
    "sigmoid": "sigmoid",
    "tanh": "hyperbolic_tangent",
    "exp": "exponential",
    "log": "logarithm",
    "sin": "sine",
    "cos": "cosine",
    "sqrt": "root",
    "softplus": "softplus",
    "relu": "relu",
    "abs": "magnitude",
    "sign": "sign_of",
    "tangent_slope": "tangent_slope",
}
_NUMBERS = ("number", "constant")
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")


class Body:
    """The body of a function: what is used more than once has a name.

    Args:
        available: the texts of leaves, and of all other nodes that need not be computed.
        roots: the expressions that the function computes.
        fields: those of `struct part`.
    """

    def __init__(self, available: Mapping[Node, str], roots: Iterable[Node], fields: Mapping[str, int]) -> None:
        self.lines: list[str] = []
        self.fields = fields
        self._texts = dict(available)
        self._uses: Counter[Node] = Counter(roots)
        for node in ordered(self._uses, lambda node: node in available):
            if node not in available:
                self._uses.update(node.inner)

    def assign(self, target: str, node: Node) -> None:
        self.lines.append(f"{target} = {_unwrapped(self.vector(node))};")

    def vector(self, node: Node) -> str:
        """Return the text of a vector, also for a number."""
        return f"splat({self._text(node)})" if is_number(node) else self._text(node)

    def named(self, node: Node) -> str:
        """Return the name of a vector, before what it is computed from may change."""
        return self._define(self.vector(node))

    def _define(self, text: str) -> str:
        if text.isidentifier():
            return text
        name = f"t{len(self.lines)}"
        self.lines.append(f"const vf {name} = {_unwrapped(text)};")
        return name

    def _text(self, node: Node) -> str:
        if node not in self._texts:
            text = self._written(node)
            if self._uses[node] > 1 and not is_number(node) and node.op not in COMPARISONS:
                text = self._define(text)
            self._texts[node] = text
        return self._texts[node]

    def _written(self, node: Node) -> str:
        if node.value is not None:
            return f"{node.value!r}f".replace("inff", "INFINITY").replace("nanf", "NAN")
        if mixed := self._mixed(node):
            return f"mixture({', '.join(map(self.vector, mixed))})"
        if node.op in _CALLS:
            return f"{_CALLS[node.op]}({self.vector(node.args[0])})"
        if node.op == "fixed":
            return self._text(node.args[0])
        if node.op == "neg":
            return f"(-{self._text(node.args[0])})"
        if node.op in _SIGNS or node.op in COMPARISONS:
            one, other = node.args
            if node.op == "add" and one.op == "input" and other.op == "multiply" and self._uses[other] == 1:
                # Rounded twice, because the stored results of the GRU are.
                return f"({self._text(one)} + held({self._text(other)}))"
            return f"({self._text(one)} {_SIGNS.get(node.op, node.op)} {self._text(other)})"
        if node.op == "select":
            condition, yes, no = node.args
            return f"select_lanes({self._text(condition)}, {self.vector(yes)}, {self.vector(no)})"
        raise AssertionError(node.op)

    def _mixed(self, node: Node) -> list[Node]:
        """Return the factors of a sum of two products with the state first, or none if neither has a state.

        Because the product with a state must not be rounded, see `mixture` in `cpu/vectors.h`.
        """
        products = [each for each in node.inner if each.op == "multiply"] if node.op == "add" else []
        products.sort(key=lambda each: all(factor.op != "state" for factor in each.args))
        if len(products) < 2 or all(factor.op != "state" for factor in products[0].args):
            return []
        is_alone = all(self._uses[each] == 1 and each not in self._texts for each in products)
        return [factor for each in products for factor in each.args] if is_alone else []


def _unwrapped(text: str) -> str:
    """Return the text of an expression without the brackets around the whole."""
    return text[1:-1] if text.startswith("(") else text


def is_number(node: Node) -> bool:
    """Return whether the text of a node is a number, not a vector."""
    return node.op in _NUMBERS or ((node.op in _SIGNS or node.op == "neg") and all(map(is_number, node.inner)))


@dataclass(eq=False)
class _Parts:
    """The parts of a phase in one direction.

    Attributes:
        bodies: in the order in which they run.
        held: how many numbers they hand on to later ones.
        means: those that they compute.
    """

    bodies: list[Body]
    held: int
    means: list[Node]


def _divided(
    ends: Sequence[Node], always: Mapping[Node, str], first: Mapping[Node, str], known: Sequence[Node], handed: int
) -> _Parts:
    """Divide what a phase computes into parts: a mean over the units ends one.

    What a later part needs is held in memory, if it costs more to compute again than to load, or cannot be.

    Args:
        ends: the expressions that the phase computes.
        always: the texts of nodes that all its parts have.
        first: the texts of those that only the first part has.
        known: the means that are known before it.
        handed: how many numbers of `unit.kept` belong to the other phase.
    """
    available = {**always, **{node: f"u->mean[{k}]" for k, node in enumerate(known)}}
    part: dict[Node, int] = {}
    nodes = ordered(ends, lambda node: node in available or node in first)
    for node in nodes:
        is_given = node in available or node in first
        part[node] = 0 if is_given else max((part[each] for each in node.inner), default=0) + (node.op == "mean")
    count = 1 + max(part.values(), default=0)
    means = [[node for node in nodes if node.op == "mean" and part[node] == k + 1] for k in range(count - 1)]
    shares = {node.args[0] for own in means for node in own}
    held: list[dict[Node, None]] = [{} for _ in range(count)]
    for k in range(count - 1, 0, -1):  # from the last one, because what a part holds for it may need earlier ones

        def is_known(node: Node, now: int = k) -> bool:
            is_dear = node in first or node in shares or node.op in FUNCTIONS
            return node in available or node.op == "mean" or (part[node] < now and is_dear)

        roots = [node.args[0] for node in means[k]] if k < count - 1 else ends
        for node in ordered([*roots, *(each for held_node in held[k] for each in held_node.inner)], is_known):
            if node not in available and node.op != "mean" and is_known(node):
                held[part[node]][node] = None
    result, kept = _Parts([], 0, []), handed
    for k in range(count):
        own = [] if k == count - 1 else means[k]
        results = [(f"u->kept[{kept + at}]", node) for at, node in enumerate(held[k])]
        before = len(known) + len(result.means)
        results += [(f"u->mean[{before + at}]", node.args[0]) for at, node in enumerate(own)]
        fields = {"number": k, "is_last": int(not own), "kept": kept - handed, "keeps": kept + len(held[k]) - handed}
        fields |= {"means": before, "adds": before + len(own)}
        roots = [node for _, node in results] if own else ends
        body = Body(available if k else {**available, **first}, roots, fields)
        for target, node in results:
            body.assign(target, node)
        result.bodies.append(body)
        available |= {node: f"u->kept[{kept + at}]" for at, node in enumerate(held[k])}
        available |= {node: f"u->mean[{before + at}]" for at, node in enumerate(own)}
        kept += len(held[k])
        result.means += own
    result.held = kept - handed
    return result


def written(plan: Plan, name: str) -> str:
    """Return the text of a cell, whose functions are called `{name}_forward` and `{name}_backward`, without a header.

    Raises:
        UnfitError: the driver does not have enough room.
    """
    gradient = differentiate(plan)
    saved, loaded = saved_for(plan, gradient)
    saved.sort(key=lambda node: plan.level[node])
    kept = _kept(plan, saved)
    both = plan.reads_both
    carried = {k for stage in gradient.stages for k in stage.states} | (
        {1} if len(plan.states) > 1 and not both else set()
    )
    late = _late(plan, saved)
    known: list[Node] = []  # the means, first those of the forward pass
    directions: dict[str, list[_Parts]] = {"forward": [], "backward": []}
    for number in range(len(plan.phases)):
        directions["forward"].append(_forward(plan, number, saved, kept, late, known))
        known += directions["forward"][-1].means
    for number in reversed(range(len(plan.phases))):
        directions["backward"].insert(0, _backward(plan, gradient, number, saved, loaded, carried, known))
        known += directions["backward"][0].means
    held = max(each.held for of_phases in directions.values() for each in of_phases)
    for count, limit, what in (
        (len(saved), SAVED, "numbers to save for the backward pass"),
        (max(len(kept), len(gradient.handed)) + held, KEPT, "numbers that one part hands to another"),
        (len(known), MEANS, "means over the units, with those of their gradients"),
    ):
        if count > limit:
            raise UnfitError(f"{count} {what}, and the loops have {limit}")
    parts, lines = [], []
    finish: dict[str, list[list[str]]] = {each: [[] for _ in plan.phases] for each in directions}
    for number, phase in enumerate(plan.phases):
        forward, backward = (directions[each][number] for each in ("forward", "backward"))
        stage = gradient.stages[number]
        text = "\n".join(line for body in backward.bodies for line in body.lines)
        is_last = number == len(plan.phases) - 1
        fields = {
            "products": len(phase.products),
            "inputs": len(phase.inputs),
            "own": len(phase.own),
            "saved": sum(plan.level[node] == number for node in saved),
            "kept": len(gradient.handed if is_last else kept),
            "means": len(forward.means) + len(backward.means),
            "parts_forward": len(forward.bodies) - 1,
            "parts_backward": len(backward.bodies) - 1,
            "states": sum(1 << k for k, at in enumerate(plan.phase_of) if at == number),
            "late": 0 if late is None else 1 << late.state,
            "outputs": _outputs(plan, gradient, number) if len(plan.phases) > 1 else 0,
            "sums": sum(1 << k for k, node in enumerate(plan.vectors) if node in stage.vectors),
            "adds": sum(1 << k for k in stage.states if plan.phase_of[k] > number),
            "before": sum(1 << k for k in range(2) if f"u->before[{k}]" in text),
            "after": sum(1 << k for k in range(2) if f"u->after[{k}]" in text),
        }
        parts.append(f"    .phase[{number}] = {{.reads = {phase.reads}{_given(fields)}}},")
        bodies = [("forward", body) for body in forward.bodies] + [("backward", body) for body in backward.bodies]
        for direction, body in bodies:
            if not body.lines:
                finish[direction][number].append("NULL")
                continue
            suffix = _suffix(number, body)
            rule, epilogue = f"{name}_{direction}_{suffix}", f"{name}_finish_{direction}_{suffix}"
            finish[direction][number].append(epilogue)
            lines += [f"INLINE void {rule}(struct unit *u) {{", *(f"    {line}" for line in body.lines), "}", ""]
            if late is not None and direction == "forward":
                completed = (f"    {line}" for line in _completed(plan, late))
                lines += [f"INLINE void {rule}_late(struct unit *u) {{", *completed, "}", ""]
                lines += [f"LATE_EPILOGUE({epilogue}, {name}, {number}, {rule}, {rule}_late)", ""]
            else:
                part = f"{epilogue}, {direction}, {name}, {number}, {rule}"
                lines += [f"PART({part}{_given(body.fields)})" if known else f"EPILOGUE({part})", ""]
    for direction, of_phases in finish.items():
        epilogues = ", ".join(each for own in of_phases for each in own)
        lines += [f"int {name}_{direction}(const struct dense *p, int64_t first, int64_t last) {{"]
        lines += [f"    return run_{direction}(&{name}, p, first, last, (epilogue *const[]){{{epilogues}}});", "}", ""]
    head = [f"static const struct cell {name} = {{", f"    .phases = {len(plan.phases)},"]
    head += [f"    .carried = {sum(1 << k for k in carried)},", *([f"    .held = {held},"] if held else [])]
    return "\n".join([*head, *parts, "};", "", *lines])


def _given(fields: Mapping[str, int]) -> str:
    """Return the fields of a structure that are not 0."""
    return "".join(f", .{field} = {value}" for field, value in fields.items() if value)


def _suffix(phase: int, body: Body) -> str:
    number = body.fields["number"]
    return f"{phase}_{number}" if number else f"{phase}"


def _outputs(plan: Plan, gradient: Gradient, number: int) -> int:
    """Return which gradients of inputs a phase computes; those that no phase has are zeros of the last one."""
    inputs, is_last = gradient.stages[number].inputs, number == len(plan.phases) - 1
    others = {node for stage in gradient.stages for node in stage.inputs} if is_last else set(plan.inputs)
    return sum(1 << k for k, node in enumerate(plan.inputs) if node in inputs or node not in others)


def _kept(plan: Plan, saved: list[Node]) -> list[Node]:
    """Return what the first phase hands to the second: what costs more than to compute it again, or cannot be."""
    if len(plan.phases) == 1:
        return []
    roots = [state for state, at in zip(plan.states, plan.phase_of, strict=True) if at]
    roots += [node for node in saved if plan.level[node]]

    def is_border(node: Node) -> bool:
        is_leaf = node.op == "product" or node in plan.phases[0].alone
        is_result = node.op != "state" and node in (plan.value, *plan.states)
        return plan.level[node] == 0 and (node.op in FUNCTIONS or is_leaf or is_result)

    def is_known(node: Node) -> bool:
        return is_border(node) or (node.op == "mean" and plan.level[node] == 0)

    return [node for node in ordered(roots, is_known) if is_border(node)]


class _Late(NamedTuple):
    """A state that a second function computes: its number, that of the state which it needs, and what else it needs."""

    state: int
    needs: int
    kept: list[Node]


def _late(plan: Plan, saved: list[Node]) -> _Late | None:
    """Return the state that is a function of the other one of the same phase, or None.

    The driver computes it in a loop of its own, because the chain of operations is shorter.
    """
    if len(plan.phases) > 1 or len(plan.states) < 2 or any(node.op == "mean" for node in ordered(plan.states)):
        return None
    for k, state in enumerate(plan.states):
        other = plan.states[1 - k]
        after = dict.fromkeys(node for node in ordered([state]) if other in ordered([node]))
        if any(node.op in FUNCTIONS for node in after if node is not other):
            outside = dict.fromkeys(each for node in after if node is not other for each in node.inner)
            kept = [each for each in outside if each not in after and each.op not in ("vector", *_NUMBERS)]
            return None if len(kept) > 2 or not after.keys().isdisjoint(saved) else _Late(k, 1 - k, kept)
    return None


def _completed(plan: Plan, late: _Late) -> list[str]:
    """Return the lines that compute the late state."""
    available = leaves(plan) | {node: f"u->kept[{k}]" for k, node in enumerate(late.kept)}
    body = Body({**available, plan.states[late.needs]: f"u->state[{late.needs}]"}, [plan.states[late.state]], {})
    body.assign(f"u->state[{late.state}]", plan.states[late.state])
    return body.lines


def leaves(plan: Plan, unit: str = "u->") -> dict[Node, str]:
    """Return the texts of a cell's vectors and constants."""
    vectors = {node: f"{unit}vector[{k}]" for k, node in enumerate(plan.vectors)}
    return vectors | {Node("constant", letter): f"{unit}constants.{letter}" for letter in "abc"}


def _forward(
    plan: Plan, number: int, saved: list[Node], kept: list[Node], late: _Late | None, known: Sequence[Node]
) -> _Parts:
    phase = plan.phases[number]
    available = leaves(plan) | {Node("state", k): f"u->state[{k}]" for k in range(len(plan.states))}
    first = {node: f"u->product[{k}]" for k, node in enumerate(phase.products)}
    first |= {node: f"u->input[{k}]" for k, node in enumerate(phase.alone)}
    if number:
        available |= {node: f"u->kept[{k}]" for k, node in enumerate(kept)}
    states = [k for k, at in enumerate(plan.phase_of) if at == number and (late is None or k != late.state)]
    results = [(f"u->saved[{k}]", node) for k, node in enumerate(saved) if plan.level[node] == number]
    results += [] if late is None else [(f"u->kept[{k}]", node) for k, node in enumerate(late.kept)]
    if number < len(plan.phases) - 1:
        results += [(f"u->kept[{k}]", node) for k, node in enumerate(kept)]
        results += [] if plan.value is None else [("u->value", plan.value)]
    ends = [*(node for _, node in results), *(plan.states[k] for k in states)]
    # The second phase does not have the products from which the first one computes a mean.
    ends += [node for node in ordered(plan.roots) if node.op == "mean" and plan.level[node] == number]
    divided = _divided(ends, available, first, known, len(kept))
    body = divided.bodies[-1]
    for target, node in results:
        body.assign(target, node)
    names = [body.named(plan.states[k]) for k in states]  # a state may be read after another one is replaced
    body.lines += [f"u->state[{k}] = {text};" for k, text in zip(states, names, strict=True)]
    return divided


def _backward(
    plan: Plan,
    gradient: Gradient,
    number: int,
    saved: list[Node],
    loaded: set[Node],
    carried: set[int],
    known: Sequence[Node],
) -> _Parts:
    stage, is_last = gradient.stages[number], number == len(plan.phases) - 1
    available = leaves(plan) | {node: f"u->saved[{k}]" for k, node in enumerate(saved)}
    for k, state in enumerate(plan.states):
        available[Node("state", k)] = f"u->before[{k}]"
        available |= {state: f"u->after[{k}]"} if state in loaded else {}
    available |= {Node("handed", k): f"u->kept[{k}]" for k in range(len(gradient.handed))}
    first = {Node("gradient", k): f"u->state[{k}]" for k in range(len(plan.states))}
    first[Node("of value")] = "u->product[0]"
    zero = Node("number", 0.0)
    results = [(f"u->output[{k}]", stage.inputs.get(node, zero)) for k, node in enumerate(plan.inputs)
               if _outputs(plan, gradient, number) >> k & 1]  # fmt: skip
    results += [(f"u->own[{k}]", stage.own.get(node, zero)) for k, node in enumerate(plan.phases[number].own)]
    results += [(f"u->sum[{k}]", stage.vectors[node]) for k, node in enumerate(plan.vectors) if node in stage.vectors]
    # The driver has the gradient of a state itself, but only in the first part.
    own_gradients = {k: Node("gradient", k) for k in range(len(plan.states))} if known else {}
    whole = own_gradients | gradient.whole
    results += [(f"u->trace[{k}]", g) for k, g in whole.items() if plan.phase_of[k] == number]
    if plan.value is not None and number < len(plan.phases) - 1:
        results.append(("u->value", plan.value))
    handed = list(enumerate(gradient.handed)) if is_last else []
    own = {k for k in carried if plan.phase_of[k] == number}
    states = [(k, stage.states.get(k, zero)) for k in sorted(own | stage.states.keys())]
    ends = [node for pairs in (results, handed, states) for _, node in pairs]
    divided = _divided(ends, available, first, known, len(gradient.handed))
    body = divided.bodies[-1]
    for target, node in results:
        body.assign(target, node)
    last = [(f"u->kept[{k}]", "", body.named(node)) for k, node in handed]
    last += [(f"u->state[{k}]", "" if k in own else f"u->state[{k}] + ", body.named(node)) for k, node in states]
    body.lines += [f"{target} = {start}{name};" for target, start, name in last]
    return divided
