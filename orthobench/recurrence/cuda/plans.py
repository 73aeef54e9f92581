"""How the persistent kernels divide a cell over a GPU: cluster, rows, lanes and threads.

The weights of a cell stay in the registers of a cluster of thread blocks for all steps. The smallest cluster that can
hold them is used, because each step sends messages between its blocks. See `gather.cuh` and `scatter.cuh`.
"""

from __future__ import annotations

import functools
import itertools
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
_SPILLED = 36  # registers of a thread that may be spilled, if the device would otherwise run many waves
_DEPTH = 4  # steps of inputs in shared memory
_MOST_GROUPS, _MOST_SUMS, _MOST_THREADS = 5, 32, 1024
_PORTABLE = 8  # blocks of a cluster that every device with clusters can run
_MULTIPLIERS = 128  # of a multiprocessor
_CYCLES_OF_MESSAGES = {1: 100, 2: 480, 4: 510, 8: 530, 16: 650}  # by cluster
# Cycles, fitted to an H100: of a step, of each further group of rows whose cell runs on its own (`gather.cuh`) or with
# the others (`scatter.cuh`), of the instructions around the products for each warp of a scheduler, and of a row.
_CYCLES_OF_STEP, _CYCLES_OF_GROUP, _CYCLES_OF_PART, _CYCLES_OF_WARP, _CYCLES_OF_ROW = 200, 900, 100, 80, 50
# Set before that fit, which kept them; no measurement of them alone is recorded. A multiprocessor issues a multiply-add
# on all its multipliers in a cycle, and 0.4 are for the loads of values from shared memory. A spilled register is
# loaded in each step, which takes about 40 cycles from the first cache. Only the order of plans depends on them.
_CYCLES_OF_PRODUCT, _CYCLES_OF_SPILL = 1.4, 40
_BARRIER = 8  # bytes


def _is_text(header: str) -> bool:
    return "\n" in header


@functools.cache
def _structs(header: str) -> dict[str, dict[str, int]]:
    """Return the constants of the structs in a header that derive from Cell; those of Cell are the defaults."""
    text = header if _is_text(header) else (CODE / header).read_text("utf-8")
    found = {}
    for name, body in re.findall(r"struct (\w+)(?: : Cell)? \{\n\s+static constexpr int ([^;]*);", text):
        found[name] = {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", body)}
    return found


@dataclass(frozen=True)
class Direction:
    """A direction of a cell, as its header declares it.

    Attributes:
        header: the file, relative to the recurrence's folder, or the text of one.
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
class GPU:
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


def plan(direction: Direction, n: int, heads: int, batch: int, device: GPU) -> Plan | None:
    """Return the plan for heads of n units each, or None if the device's largest cluster cannot hold their weights."""
    plans = [
        each
        for cluster in CLUSTERS
        if device.clusters.get(cluster, 0) > 0
        for each in _plans(direction, n, heads, batch, device, cluster)
    ]
    return min(plans, key=lambda each: _preference(direction, each, batch, device), default=None)


def _preference(direction: Direction, plan: Plan, batch: int, device: GPU) -> tuple[float, ...]:
    """Return an order of plans: by the estimated cycles of a step in all waves, then by the use of loaded values."""
    uses = plan.each * (4 if direction.scatters else _most_products(direction))
    target = 8 if plan.padded > 128 else 4
    messages = _CYCLES_OF_MESSAGES[plan.cluster]
    weights = _weights(direction, plan.padded, plan.cluster, plan.lanes, plan.each)
    of_row = _CYCLES_OF_ROW + _CYCLES_OF_PRODUCT * weights * plan.threads / _MULTIPLIERS
    spilled = weights + _OTHER_REGISTERS + _more_registers(direction, plan.rows, plan.groups, plan.each)
    spilled = max(0, spilled - _registers(plan.threads))
    further = _CYCLES_OF_PART if direction.scatters else _CYCLES_OF_GROUP
    warps = _CYCLES_OF_WARP * plan.threads / _MULTIPLIERS
    step = messages + _CYCLES_OF_SPILL * spilled + _CYCLES_OF_STEP + (plan.groups - 1) * further + warps
    step += plan.groups * plan.rows * of_row
    waves = -(-plan.grid(batch) // (device.clusters[plan.cluster] * plan.cluster * plan.blocks))
    width = 32 // plan.lanes * plan.each
    return waves * step, max(0, target - uses), width if direction.scatters else -width, uses


def _most_products(direction: Direction) -> int:
    return max(direction.constants["PRODUCTS"], direction.constants["PRODUCTS_2"])


def _registers(threads: int) -> int:
    """Return how many registers a thread can have."""
    return min(MAX_REGISTERS, REGISTERS // threads // 8 * 8)


def _weights(direction: Direction, padded: int, cluster: int, lanes: int, each: int) -> int:
    """Return the number of weights of a thread."""
    numbers = direction.constants
    if direction.scatters:
        return 4 * each * _multiple(numbers["VALUES"] * padded // cluster, 4 * lanes) // lanes
    second = numbers["VALUES_2"] * numbers["PRODUCTS_2"] if numbers["PHASES"] == 2 else 0
    return (numbers["VALUES"] * numbers["PRODUCTS"] + second) * padded * each // lanes


def _more_registers(direction: Direction, rows: int, groups: int, each: int) -> int:
    """Return how many registers the sums of a group's products and the states of the other groups need."""
    return rows * each * (4 if direction.scatters else _most_products(direction)) + 6 * (groups - 1)


def _plans(direction: Direction, n: int, heads: int, batch: int, device: GPU, cluster: int) -> Iterator[Plan]:
    choices = [(8, 1), (8, 2)]
    if not direction.scatters:
        choices += [(16, 2), (16, 4), (32, 4), (32, 8)]
    if (
        cluster == 1 and not direction.scatters and _most_products(direction) == 1
    ):  # few warps, each of whose lanes ends with a unit
        choices += [(1, 1), (2, 2), (4, 2), (4, 4)]
    for lanes, each in choices:
        width = 32 // lanes * each * (4 if direction.scatters else 1)  # units of a warp
        padded = _multiple(
            n, math.lcm(width, 4 * cluster) if direction.scatters else math.lcm(4 * lanes, cluster * width)
        )
        threads = 32 * padded // width if direction.scatters else 32 * padded // cluster // width
        weights = _weights(direction, padded, cluster, lanes, each)
        if threads > _MOST_THREADS or weights + _OTHER_REGISTERS > _registers(threads):
            continue
        least = weights + _OTHER_REGISTERS + _more_registers(direction, 1, 1, each)
        blocks = max(1, min(4, REGISTERS // (threads * _multiple(least, 8)))) if cluster == 1 else 1
        for rows, groups in _divisions(batch, max(1, device.clusters[cluster] * blocks // heads), lanes):
            more = _more_registers(direction, rows, groups, each)
            if (
                more > _MOST_SUMS + 6 * (groups - 1)
                or weights + _OTHER_REGISTERS + more > _registers(threads) + _SPILLED
            ):
                continue
            together = blocks if rows * groups == 1 else 1
            made = (n, heads, padded, cluster, rows, groups, lanes, each, threads, _DEPTH)
            if (shared := _shared(direction, *made)) * together <= device.shared:
                yield Plan(*made, shared, together)


def _divisions(batch: int, clusters: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yield divisions of a cluster's rows into groups, up to those that run the batch in one wave."""
    wanted = -(-batch // clusters)
    divisions = itertools.product((1, 2, 4), range(1, _MOST_GROUPS + 1))
    yield from ((rows, groups) for rows, groups in divisions if rows <= lanes and rows * (groups - 1) < wanted)


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
    declared = direction.header if _is_text(direction.header) else f'#include "{direction.header}"'
    return f"""{declared}
#include "cuda/{kind.lower()}.cuh"
struct Plan {{ static constexpr int {constants}; }};
typedef {kind}<{direction.cell}, Plan, {"true" if direction.backward else "false"}> Run;
static_assert(sizeof(Run::Shared) <= {plan.shared}, "the plan has too little shared memory");
PERSISTENT_KERNEL(persistent, {plan.threads}, {plan.blocks}, {plan.cluster}, Arguments, Run::run)
"""


def headers() -> list[Path]:
    """Return the headers of all kernels."""
    return sorted(CODE.rglob("*.cuh"))
