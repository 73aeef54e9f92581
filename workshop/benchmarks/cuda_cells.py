"""Time the CUDA kernels of every cell on a GPU, in about a minute and without a network.

    python workshop/benchmarks/cuda_cells.py --out FOLDER                 # everything below
    python workshop/benchmarks/cuda_cells.py --out FOLDER --kinds layer   # some of it
    python workshop/benchmarks/cuda_cells.py --tables FOLDER              # write the results into RESULTS_CUDA.md

    layer      whole steps of the layers next to cuDNN, eagerly and as CUDA graphs
    model      training steps of every model, eagerly and as CUDA graphs
    plans      the plans that are estimated to be the fastest, timed next to each other

The program compiles the kernels on all cores. The results are in FOLDER/cuda_cells.jsonl after each job, and a table at
the end is printed and written to FOLDER/cuda_cells.txt. `orthobench doctor --retest` compares the kernels with float64.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from orthobench.bench.measure import interleave, summarise  # noqa: E402
from orthobench.recurrence import kernels  # noqa: E402
from orthobench.recurrence.cuda import nvrtc, persistent, plans  # noqa: E402
from orthobench.recurrence.ops import operations  # noqa: E402

Job = dict[str, Any]
DEVICE = torch.device("cuda", 0)
SHAPES = [(784, 128, 128), (200, 50, 128), (150, 128, 350), (784, 128, 256)]
KINDS = ("layer", "model", "plans")
# Shapes of the plans: operation, form, units, batch, and whether only the forward pass is timed.
PLANS = [
    *(("recurrence", 17, 128, 50, False), ("recurrence", 17, 170, 50, False), ("lstm", 0, 350, 128, True)),
    *(("gru", 1, 350, 128, True), ("lstm", 0, 256, 128, True), ("gru", 1, 256, 128, False)),
]
PLANS_SHOWN = 7
ROUNDS, SHORTEST, PATIENCE = 4, 0.01, 0.5  # samples of a step, the seconds of one at least, and of all at most
BEGIN, END = "<!-- tables of cuda_cells.py -->", "<!-- end -->"
LAYERS = ("LSTM", "GRU", "RNN")


def cells() -> dict[str, Any]:
    """The operations with kernels in CUDA C++, by name."""
    found = {}
    for operation in operations():
        kernel = kernels.find(operation, "cuda")
        if kernel is not None and issubclass(kernel, persistent.CompiledKernel):
            found[operation.name] = operation
    return found


def jobs() -> list[Job]:
    """The jobs, the most important first."""
    from orthobench.plugins import Catalog

    names = Catalog(()).names("model")
    names.sort(key=lambda name: name != "scornn")
    layers = [{"kind": "layer", "name": name, "shape": shape} for shape in SHAPES for name in LAYERS]
    sizes = [*((name, 128) for name in names), ("scornn", 360), ("scornn", 512)]
    models = [{"kind": "model", "name": name, "n": n} for name, n in sizes]
    triton = [{"kind": "model", "name": "scornn", "n": 128, "triton": True}]
    keys = ("op", "form", "n", "batch", "forward")
    planned = [{"kind": "plans", **dict(zip(keys, shape, strict=True))} for shape in PLANS]
    return [*layers, *models, *planned, *triton]


def of(job: Job) -> tuple[Any, dict[str, Any]]:
    """Return the operation of a job, and all parameters of its form, with empty vectors."""
    operation = cells()[job["op"]]
    form = list(operation.forms(job["n"]))[job["form"]]
    vectors = {name: torch.empty(size) for name, size in form.vectors.items()}
    return operation, operation.bind(None, **form.parameters, **vectors)


def directions(job: Job) -> Iterator[tuple[plans.Direction, int, int, int]]:
    """Yield the directions of a job's cell, the units of a head, the heads and the batch."""
    if job["kind"] == "layer":
        _, batch, n = job["shape"]
        op, form = {"LSTM": ("lstm", 0), "GRU": ("gru", 1), "RNN": ("recurrence", 5)}[job["name"]]
        job = {"op": op, "form": form, "n": n, "batch": batch}
    if "op" not in job or job["op"] == "independent_recurrence":
        return
    operation, parameters = of(job)
    heads = parameters.get("heads", 1)
    chosen = kernels.find(operation, "cuda").cells(parameters)  # type: ignore[union-attr]
    for direction in (chosen.forward,) if job.get("forward") else (chosen.forward, chosen.backward):
        yield direction, job["n"] // heads, heads, job["batch"]
        if direction.scatters and job.get("kind") == "plans":
            yield dataclasses.replace(direction, scatters=False), job["n"] // heads, heads, job["batch"]


def some_plans(direction: plans.Direction, n: int, heads: int, batch: int) -> list[plans.Plan]:
    """Return the plans of a direction that are estimated to be the fastest, the best of each cluster among them."""
    device = nvrtc.describe(DEVICE)
    every = [
        plan
        for size in plans.CLUSTERS
        if device.clusters.get(size, 0) > 0
        for plan in dict.fromkeys(plans._plans(direction, n, heads, batch, device, size))
    ]
    every.sort(key=lambda plan: plans._preference(direction, plan, batch, device))
    best: dict[tuple[int, ...], plans.Plan] = {}  # of each division; those with the same lanes are alike
    for plan in every:
        best.setdefault((plan.cluster, plan.rows, plan.groups), plan)
    lanes = {(plan.cluster, plan.lanes, plan.each): plan for plan in reversed(every)}
    others = sorted((*best.values(), *lanes.values()), key=every.index)
    return list(dict.fromkeys((every[0], *others)))[:PLANS_SHOWN]


def compile_all(work: list[Job]) -> None:
    """Compile the kernels of these jobs on all cores."""
    device, wanted = nvrtc.describe(DEVICE), {}
    for job in work:
        for direction, n, heads, batch in directions(job):
            if job["kind"] == "plans":
                for plan in some_plans(direction, n, heads, batch):
                    wanted[plans.source(direction, plan)] = True
            elif (chosen := plans.plan(direction, n, heads, batch, device)) is not None:
                wanted[plans.source(direction, chosen)] = True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for program, future in [
            (program, pool.submit(nvrtc.machine_code, program, device.capability)) for program in wanted
        ]:
            try:
                future.result()
            except RuntimeError as error:
                print(f"does not compile: {error}: {program.splitlines()[3]}", flush=True)


def device_clock() -> float:
    """Return the seconds at which the GPU has done all that it was asked for."""
    torch.cuda.synchronize()
    return time.perf_counter()


def milliseconds(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the milliseconds of each run among many, by the clock: a slow host shows."""
    samples = interleave(runs, ROUNDS, device_clock, SHORTEST, PATIENCE)
    return {name: summarise(each).seconds * 1e3 for name, each in samples.items()}


def recorded(run: Callable[[], object]) -> Callable[[], object]:
    """Return a function that replays a run as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def layer(job: Job) -> Job:
    """Time whole steps of a layer and of cuDNN's: forward, backward and weight gradients, for inputs of one feature."""
    from orthobench import nn

    steps, batch, n = job["shape"]
    x = torch.randn(steps, batch, 1, device=DEVICE)
    way = torch.randn(steps, batch, n, device=DEVICE)
    settings = {"reset_after": True} if job["name"] == "GRU" else {}
    layers = {"ours": getattr(nn, job["name"])(1, n, device=DEVICE, **settings)}
    result: Job = {}
    try:
        layers["cudnn"] = getattr(torch.nn, job["name"])(1, n, device=DEVICE)
    except RuntimeError as error:  # there is no cuDNN
        result["left out"] = str(error)

    def step_of(module: torch.nn.Module) -> Callable[[], object]:
        parameters = [each for each in module.parameters() if each.requires_grad]

        def step() -> object:
            output, _ = module(x)
            return torch.autograd.grad(output, parameters, way, allow_unused=True)

        return step

    runs = {name: step_of(module) for name, module in layers.items()}
    for run in runs.values():
        run()
        run()
    times = milliseconds(runs | {f"{name} graph": recorded(run) for name, run in runs.items()})
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(3):
            runs["ours"]()
        torch.cuda.synchronize()
    durations = [each.time_range.elapsed_us() for each in profile.events() if each.name == "persistent"]
    if durations:
        result["kernels"] = [statistics.median(durations[i::2]) / 1e3 for i in (0, 1)]
    return result | times


def model(job: Job) -> Job:
    """Time training steps of a model on the adding problem, T = 784 and B = 50, as a CUDA graph and eagerly.

    With "triton" the kernels in Triton run instead of those in CUDA C++.
    """
    from orthobench.plugins import Catalog
    from orthobench.recurrence.backends import forget_used, last_used
    from orthobench.spec.resolve import resolve
    from orthobench.training.build import build_trainer

    settings = {"sequence_length": "784", "train_size": "500", "test_size": "50", "batch_size": "50"}
    config = resolve(Catalog(()), "adding", job["name"], settings | {"hidden_size": str(job["n"])}, "paper", 0)
    result: Job = {}
    problem = persistent.problem
    if job.get("triton"):
        persistent.problem = lambda device: "left out, to time Triton"  # type: ignore[assignment]
    try:
        for mode in ("on", "off"):
            forget_used()
            trainer = build_trainer(config, DEVICE)
            trainer.use_graph(mode)
            for _ in range(4):  # with a graph, its warm-up and the recording
                trainer.advance()
            name = "graph" if mode == "on" else "eager"
            result |= milliseconds({name: trainer.advance})
            result["backends"] = sorted(last_used())
    finally:
        persistent.problem = problem
    return result


def time_plans(job: Job) -> Job:
    """Time a cell's kernels alone with several plans each, T = 200."""
    steps, result = 200, {}
    for direction, n, heads, batch in directions(job):
        numbers, all_units = direction.constants, n * heads
        operation, _ = of(job)
        zeros = lambda *sizes: torch.randn(*sizes, device=DEVICE) * 0.1  # noqa: E731
        columns = n * operation.sources
        arguments: dict[str, Any] = {
            "input": zeros(steps, batch, numbers["INPUTS"] * all_units),
            "weight": zeros(operation.rows * all_units, columns),
            "output": zeros(steps, batch, numbers["OUTPUTS"] * all_units),
            "second": zeros(steps, batch, all_units) if numbers["SECOND"] else None,
            "saved": zeros(steps, batch, numbers["SAVED"] * all_units) if numbers["SAVED"] else None,
        }
        for plan in some_plans(direction, n, heads, batch):
            kind = f"{'B' if direction.backward else 'F'}{' parts' if direction.scatters else ''}"
            name = f"{kind} cl{plan.cluster} r{plan.rows}x{plan.groups} l{plan.lanes} e{plan.each}"
            run = persistent.Loaded(persistent.loaded(direction, plan, DEVICE), plan.grid(batch))
            call = lambda: run(steps, batch, constants=(0.3, 1 / 0.3, 0.1), **arguments)  # noqa: B023, E731
            result[name] = milliseconds({name: call})[name] * 1e3 / steps  # microseconds a step
    return result


RUN = {"layer": layer, "model": model, "plans": time_plans}


def run_all(work: list[Job], file: Path, end: float) -> list[Job]:
    """Run jobs until the time is over, write their records into a file, and return them."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    records = []
    with file.open("w") as stream:
        for job in work:
            if time.time() > end:
                break
            try:
                result = RUN[job["kind"]](job)
            except Exception as error:  # the next job may work, unless the context is broken
                result = {"failed": f"{type(error).__name__}: {str(error)[:400]}"}
            records.append(job | result)
            stream.write(json.dumps(records[-1]) + "\n")
            stream.flush()
    return records


def table(records: list[Job], work: list[Job]) -> str:
    """Return the results as text."""
    lines = []
    for record in (each for each in records if each["kind"] == "layer"):
        steps, batch, n = record["shape"]
        what = f"{record['name']:5} T={steps} B={batch} n={n}"
        if "failed" in record:
            lines += [f"{what}: {record['failed']}"]
            continue
        kernel = " + ".join(f"{each:.2f}" for each in record.get("kernels", ())) or "other kernels"
        record = {"cudnn": math.nan, "cudnn graph": math.nan, **record}
        ours, cudnn = record["ours graph"], record["cudnn graph"]
        lines += [
            f"{what:26} cuDNN {record['cudnn']:6.2f} graph {cudnn:6.2f}   ours {record['ours']:6.2f} graph {ours:6.2f} "
            f"ms   ({kernel})   {cudnn / ours:5.2f} x, eager {record['cudnn'] / record['ours']:5.2f} x, "
            f"{record['ours'] / ours:4.2f} x graph"
        ]
    models = [each for each in records if each["kind"] == "model"]
    base = next((each.get("graph") for each in models if each["name"] == "scornn"), None)
    for record in sorted(models, key=lambda each: (each["n"], each.get("graph", math.inf))):
        what = f"{record['name']} {record['n']}{' Triton' * bool(record.get('triton'))}"
        if "failed" in record:
            lines += [f"{what}: {record['failed'][:160]}"]
            continue
        ratio = f"{record['graph'] / base:6.2f} x" if base else ""
        lines += [f"{what:24} graph {record['graph']:8.2f} eager {record['eager']:8.2f} ms {ratio}"]
    for record in (each for each in records if each["kind"] == "plans"):
        times = {name: round(value, 2) for name, value in record.items() if isinstance(value, float)}
        lines += [f"{record['op']} {record['form']} n={record['n']} B={record['batch']}: {record.get('failed', times)}"]
    missing = len(work) - len(records)
    return "\n".join([*lines, f"{missing} jobs were not run"] if missing else lines)


def tables(records: list[Job]) -> str:
    """Return the tables of RESULTS_CUDA.md in Markdown."""
    lines = ["| layer | T, B, n | cuDNN | graph | ours | graph | x cuDNN, eager | x graph |"]
    lines += ["| --- " * 8 + "|"]
    for record in records:
        if record["kind"] == "layer" and "failed" not in record:
            times = [record[name] for name in ("cudnn", "cudnn graph", "ours", "ours graph")]
            ratios = f"{times[0] / times[2]:.2f} | **{times[1] / times[3]:.2f}**"
            sizes = ", ".join(map(str, record["shape"]))
            lines.append(f"| {record['name']} | {sizes} | {' | '.join(f'{each:.2f}' for each in times)} | {ratios} |")
    models = [each for each in records if each["kind"] == "model" and "failed" not in each]
    base = next((each["graph"] for each in models if each["name"] == "scornn"), math.nan)
    cells_of = [
        f"{each['name']}{' (Triton)' * bool(each.get('triton'))}{'' if each['n'] == 128 else ' ' + str(each['n'])} "
        f"| {each['graph']:.3g} | {each['eager']:.3g} | {each['graph'] / base:.2f}"
        for each in sorted(models, key=lambda each: (each["n"], each["graph"]))
    ]
    rows = -(-len(cells_of) // 2)
    lines += ["", "| model | graph | eager | x scornn | | model | graph | eager | x scornn |", "| --- " * 9 + "|"]
    for i in range(rows):
        right = cells_of[rows + i] if rows + i < len(cells_of) else " | | |"
        lines.append(f"| {cells_of[i]} | | {right} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="the folder of the results")
    parser.add_argument("--seconds", type=float, default=150.0, help="time for everything")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which jobs")
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="only write these results into RESULTS_CUDA.md")
    options = parser.parse_args()
    if options.tables:
        text = (options.tables / "cuda_cells.jsonl").read_text()
        page = ROOT / "workshop/benchmarks/RESULTS_CUDA.md"
        before, _, rest = page.read_text().partition(f"{BEGIN}\n")
        _, _, after = rest.partition(END)
        own = tables([json.loads(line) for line in text.splitlines()])
        page.write_text(f"{before}{BEGIN}\n{own}\n{END}{after}")
        return
    begun = time.time()
    work = [job for job in jobs() if job["kind"] in options.kinds.split(",")]
    options.out.mkdir(parents=True, exist_ok=True)
    print(torch.cuda.get_device_name(DEVICE), nvrtc.describe(DEVICE), flush=True)
    compile_all(work)
    print(f"compiled after {time.time() - begun:.0f} s", flush=True)
    records = run_all(work, options.out / "cuda_cells.jsonl", begun + options.seconds)
    text = table(records, work)
    (options.out / "cuda_cells.txt").write_text(text + "\n")
    print(f"{text}\n{time.time() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
