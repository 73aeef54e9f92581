"""How the persistent kernels divide a cell over a GPU: cluster, rows, lanes and threads.

The weights of a cell stay in the registers of a cluster of thread blocks for all steps. The smallest cluster that can
hold them is used, because each step sends messages between its blocks. See `gather.cuh` and `scatter.cuh`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CODE = Path(__file__).parents[1]
"""The folder from which kernels include headers."""
CLUSTERS = (1, 2, 4, 8, 16)
REGISTERS, MAX_REGISTERS = 65536, 255  # per multiprocessor, and per thread
_OTHER_REGISTERS = 56  # of a thread: addresses, states and inputs
_DEPTH = 4  # steps of inputs in shared memory
_MOST_GROUPS, _MOST_SUMS, _MOST_ROWS = 5, 32, 10
_BARRIER = 8  # bytes


@functools.cache
def _structs(header: str) -> dict[str, dict[str, int]]:
    """Return the constants of the structs in a header that derive from Cell; those of Cell are the defaults."""
    text = (CODE / header).read_text("utf-8")
    found = {}
    for name, body in re.findall(r"struct (\w+)(?: : Cell)? \{\n\s+static constexpr int ([^;]*);", text):
        found[name] = {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", body)}
    return found


@dataclass(frozen=True)
class Direction:
    """A direction of a cell, as its header declares it.

    Attributes:
        header: the file, relative to the recurrence's folder.
        cell: the name of the struct, with its template arguments.
        backward: whether time is reversed and the weight transposed.
        scatters: whether the blocks exchange partial sums (`scatter.cuh`) instead of values (`gather.cuh`).
    """

    header: str
    cell: str
    backward: bool = False
    scatters: bool = False

    @functools.cached_property
    def constants(self) -> Mapping[str, int]:
        """The constants of the struct, by name; `cell.cuh` describes them."""
        return {**_structs("cuda/cell.cuh")["Cell"], **_structs(self.header)[self.cell.partition("<")[0]]}


@dataclass(frozen=True)
class Device:
    """What a plan needs to know of a GPU.

    Attributes:
        capability: its compute capability as two digits, such as 90.
        clusters: how many clusters of each size it runs at the same time, with a block on each multiprocessor.
        shared: bytes of shared memory that a block can have.
    """

    capability: int
    clusters: Mapping[int, int]
    shared: int


@dataclass(frozen=True)
class Plan:
    """The constants of a compiled kernel; `gather.cuh` and `scatter.cuh` describe them."""

    units: int
    heads: int
    padded: int
    cluster: int
    rows: int
    groups: int
    lanes: int
    each: int
    threads: int
    depth: int
    shared: int
    blocks: int

    def grid(self, batch: int) -> int:
        """Return the number of blocks for this many batch rows."""
        return -(-batch // (self.rows * self.groups)) * self.heads * self.cluster


def plan(direction: Direction, n: int, heads: int, batch: int, device: Device) -> Plan | None:
    """Return the plan for heads of n units each, or None if the device's largest cluster cannot hold their weights."""
    for cluster in CLUSTERS:
        if device.clusters.get(cluster, 0) < 1:
            continue
        plans = [*_plans(direction, n, heads, batch, device, cluster)]
        if plans:
            return min(plans, key=lambda each: _preference(direction, each))
    return None


def _preference(direction: Direction, plan: Plan) -> tuple[float, ...]:
    """Return an order of plans with the same cluster: little padding, then few loads for the multiply-adds."""
    numbers = direction.constants
    uses = plan.each * (4 if direction.scatters else max(numbers["PRODUCTS"], numbers["PRODUCTS_2"]))
    target = 8 if plan.padded > 128 or direction.scatters else 4
    width = 32 // plan.lanes * plan.each
    return plan.padded, -width, max(0, target - uses), uses, plan.rows * plan.groups


def _plans(direction: Direction, n: int, heads: int, batch: int, device: Device, cluster: int) -> Iterator[Plan]:
    numbers = direction.constants
    choices = [(8, 1), (8, 2)] if direction.scatters else [(8, 1), (8, 2), (16, 2), (16, 4), (32, 4), (32, 8)]
    for lanes, each in choices:
        width = 32 // lanes * each * (4 if direction.scatters else 1)  # units of a warp
        if direction.scatters:
            padded = _multiple(n, math.lcm(width, 4 * cluster))
            terms = _multiple(numbers["VALUES"] * padded // cluster, 4 * lanes)
            threads, weights = 32 * padded // width, 4 * each * terms // lanes
            products = 4
        else:
            padded = _multiple(n, math.lcm(4 * lanes, cluster * width))
            second = numbers["VALUES_2"] * numbers["PRODUCTS_2"] if numbers["PHASES"] == 2 else 0
            threads = 32 * padded // cluster // width
            weights = (numbers["VALUES"] * numbers["PRODUCTS"] + second) * padded * width // 32
            products = max(numbers["PRODUCTS"], numbers["PRODUCTS_2"])
        if threads > 1024:
            continue
        most = min(MAX_REGISTERS, REGISTERS // threads // 8 * 8)
        least = weights + _OTHER_REGISTERS + each * products
        if least > most:
            continue
        blocks = max(1, min(4, REGISTERS // (threads * _multiple(least, 8)))) if cluster == 1 else 1
        for rows, groups in _divisions(batch, max(1, device.clusters[cluster] * blocks // heads), lanes):
            sums = rows * each * products
            if sums > _MOST_SUMS or weights + _OTHER_REGISTERS + sums + 6 * (groups - 1) > most:
                continue
            if groups > 1:
                blocks = 1
            made = (n, heads, padded, cluster, rows, groups, lanes, each, threads, _DEPTH)
            if (shared := _shared(direction, *made)) * blocks <= device.shared:
                yield Plan(*made, shared, blocks)
                break


def _divisions(batch: int, clusters: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yield divisions of a cluster's rows into groups, in the order of preference.

    As few rows as keep all clusters busy at the same time come first, and more than those only if nothing else fits.
    """
    wanted = min(-(-batch // clusters), _MOST_ROWS)
    divisions = [(rows, -(-wanted // rows)) for rows in (1, 2, 4) if rows <= lanes]
    divisions = [(rows, groups) for rows, groups in divisions if groups <= _MOST_GROUPS]
    yield from sorted(divisions, key=lambda division: (division[0] * division[1], -division[0]))
    yield from ((2, 1), (1, 1))  # in more than one wave


def _shared(
    direction: Direction,
    n: int,
    heads: int,
    padded: int,
    cluster: int,
    rows: int,
    groups: int,
    lanes: int,
    each: int,
    threads: int,
    depth: int,
) -> int:
    """Return the bytes of the struct Shared of a kernel."""
    numbers = direction.constants
    span, read = padded // cluster, max(1, numbers["INPUTS"] + numbers["SECOND"])
    if direction.scatters:
        terms = _multiple(numbers["VALUES"] * span, 4 * lanes)
        items = -(-span * rows * groups // threads)
        floats = 2 * rows * groups * (padded + terms) + depth * items * read * threads
        return _multiple(4 * floats + 2 * _BARRIER, 16)
    most = max(numbers["VALUES"], numbers["VALUES_2"] if numbers["PHASES"] == 2 else 0)
    bits = min(int(math.log2(each)), int(math.log2(lanes)) - int(math.log2(rows)))
    floats = 2 * groups * most * rows * padded + depth * groups * (each >> bits) * read * threads
    return _multiple(4 * floats + 2 * groups * _BARRIER, 16)


def _multiple(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def source(direction: Direction, plan: Plan) -> str:
    """Return the program of a kernel named `persistent`."""
    kind = "Scatter" if direction.scatters else "Gather"
    names = ("units", "heads", "padded", "cluster", "rows", "groups", "lanes", "each", "threads", "depth")
    constants = ", ".join(f"{name.upper()} = {getattr(plan, name)}" for name in names)
    return f"""#include "{direction.header}"
#include "cuda/{kind.lower()}.cuh"
struct Plan {{ static constexpr int {constants}; }};
typedef {kind}<{direction.cell}, Plan, {"true" if direction.backward else "false"}> Run;
static_assert(sizeof(Run::Shared) <= {plan.shared}, "the plan has too little shared memory");
PERSISTENT_KERNEL(persistent, {plan.threads}, {plan.blocks}, {plan.cluster}, Arguments, Run::run)
"""


def headers() -> list[Path]:
    """Return the headers of all kernels."""
    return sorted(CODE.rglob("*.cuh"))
