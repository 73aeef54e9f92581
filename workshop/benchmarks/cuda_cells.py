"""Test and time the CUDA kernels of every cell on a GPU, in about a minute and without a network.

    python workshop/benchmarks/cuda_cells.py --out FOLDER                 # everything below
    python workshop/benchmarks/cuda_cells.py --out FOLDER --kinds layer   # some of it
    python workshop/benchmarks/cuda_cells.py --tables FOLDER              # write the results into RESULTS_CUDA.md

    check      each form of the kernels, compared with float64
    gradients  the gradients of every model on one batch, on the GPU and on the CPU, compared with float64 on the CPU
    layer      whole steps of the layers next to cuDNN, eagerly and as CUDA graphs
    model      training steps of every model, eagerly and as CUDA graphs
    plans      the plans that are estimated to be the fastest, timed next to each other

The program compiles the kernels on all cores. If a kernel ends its process, the next one goes on behind it. The results
are in FOLDER/cuda_cells.jsonl after each job, and a table at the end is printed and written to FOLDER/cuda_cells.txt.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
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
from orthobench.recurrence import kernel_case, kernels, reference  # noqa: E402
from orthobench.recurrence.call import Call, Form  # noqa: E402
from orthobench.recurrence.cuda import nvrtc, persistent, plans, self_test  # noqa: E402
from orthobench.recurrence.ops import operations  # noqa: E402

Job = dict[str, Any]
DEVICE = torch.device("cuda", 0)
CHECK_STEPS = 40
SHOWN = 1e-4  # a larger error of a model's gradient is listed
LIMIT = 3e-6  # of the relative error; float32 has 1e-7 to 3e-7, and TF32 5e-4
SHAPES = [(784, 128, 128), (200, 50, 128), (150, 128, 350), (784, 128, 256)]
KINDS = ("check", "gradients", "layer", "model", "plans")
# Shapes of the plans: operation, form, units, batch, and whether only the forward pass is timed.
PLANS = [
    *(("recurrence", 17, 128, 50, False), ("recurrence", 17, 170, 50, False), ("lstm", 0, 350, 128, True)),
    *(("gru", 1, 350, 128, True), ("lstm", 0, 256, 128, True), ("gru", 1, 256, 128, False)),
]
PLANS_SHOWN = 7
AT_ONCE = 4  # processes of jobs that are not timed
ROUNDS, SHORTEST, PATIENCE = 4, 0.01, 0.5  # samples of a step, the seconds of one at least, and of all at most
BEGIN, END = "<!-- tables of cuda_cells.py -->", "<!-- end -->"
LAYERS = ("LSTM", "GRU", "RNN")
SILENCE = 60  # seconds after which a child that writes nothing is ended


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

    checks: list[Job] = []
    # The sizes of the timed shapes and other clusters; forms of the plain recurrence: tanh, and modReLU with a bias.
    for n, batch in ((128, 128), (128, 50), (256, 128), (350, 128), (512, 50), (20, 300)):
        for name, form in (("lstm", 0), ("gru", 1), ("recurrence", 4), ("recurrence", 17), ("lem", 0), ("slstm", 0)):
            checks.append({"kind": "check", "op": name, "form": form, "n": n, "batch": batch})
    for name, operation in cells().items():
        for index, _ in enumerate(operation.forms(62)):
            checks.append({"kind": "check", "op": name, "form": index, "n": 62, "batch": 50})
    names = Catalog(()).names("model")
    names.sort(key=lambda name: name != "scornn")
    gradients = [{"kind": "gradients", "name": name} for name in names]
    layers = [{"kind": "layer", "name": name, "shape": shape} for shape in SHAPES for name in LAYERS]
    sizes = [*((name, 128) for name in names), ("scornn", 360), ("scornn", 512)]
    models = [{"kind": "model", "name": name, "n": n} for name, n in sizes]
    triton = [{"kind": "model", "name": "scornn", "n": 128, "triton": True}]
    keys = ("op", "form", "n", "batch", "forward")
    return [*checks, *gradients, *layers, *models, *plan_jobs(keys), *triton]


def plan_jobs(keys: tuple[str, ...]) -> list[Job]:
    """The jobs that time plans."""
    return [{"kind": "plans", **dict(zip(keys, shape, strict=True))} for shape in PLANS]


def of(job: Job) -> tuple[Any, Form, dict[str, Any]]:
    """Return the operation of a job, its form, and all parameters with empty vectors."""
    operation = cells()[job["op"]]
    form = list(operation.forms(job["n"]))[job["form"]]
    vectors = {name: torch.empty(size) for name, size in form.vectors.items()}
    return operation, form, operation.bind(None, **form.parameters, **vectors)


def directions(job: Job) -> Iterator[tuple[plans.Direction, int, int, int]]:
    """Yield the directions of a job's cell, the units of a head, the heads and the batch."""
    if job["kind"] == "layer":
        _, batch, n = job["shape"]
        op, form = {"LSTM": ("lstm", 0), "GRU": ("gru", 1), "RNN": ("recurrence", 5)}[job["name"]]
        job = {"op": op, "form": form, "n": n, "batch": batch}
    if "op" not in job or job["op"] == "independent_recurrence":
        return
    operation, _, parameters = of(job)
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


def check(job: Job) -> Job:
    """Compare values, gradients and gradient norms with float64."""
    operation, form, parameters = of(job)
    kernel: Any = kernels.find(operation, "cuda")
    call = self_test_call(operation, parameters, job["n"], job["batch"])
    if reason := kernel.misfit(call):
        return {"skipped": reason}
    steps = CHECK_STEPS if job["n"] * job["batch"] <= 128 * 50 else CHECK_STEPS // 4
    problem = self_test.problem(operation, parameters, job["n"], job["batch"], steps)
    arguments = [each.to(DEVICE) for each in problem]
    errors: dict[str, float] = {}
    for traced in (False, True):
        options = (operation, form.parameters, tuple(form.vectors), arguments)
        expected = kernel_case.evaluate(reference.run, *options, torch.float64, traced)
        poison()
        actual = kernel_case.evaluate(kernel.run, *options, torch.float32, traced)
        torch.cuda.synchronize()
        errors |= {
            f"{name}{' traced' * traced}": kernel_case.distance(actual[name], value) for name, value in expected.items()
        }
    worst = max(errors, key=lambda name: (errors[name] != errors[name], errors[name]))
    result: Job = {"worst": worst, "error": errors[worst], "passed": errors[worst] <= LIMIT}
    return result if result["passed"] else result | {"errors": errors}


def self_test_call(operation: Any, parameters: Job, n: int, batch: int) -> Call:
    """Return a call of one step, only to ask which kernel would run it."""
    state = tuple(torch.empty(batch, n, device=DEVICE) for _ in operation.states)
    x = torch.empty(1, batch, operation.gates * n, device=DEVICE)
    return Call(operation, x, torch.empty(0, device=DEVICE), state, parameters)


def gradients(job: Job) -> Job:
    """Compare a model's gradients on one batch, T = 40, on the GPU and on the CPU with those in float64."""
    from torch.nn.functional import cross_entropy

    from orthobench.model import Signature
    from orthobench.plugins import Catalog
    from orthobench.recurrence.backends import forget_used, last_used, use_backend

    model_class = Catalog(()).load("model", job["name"])

    def of_model(device: torch.device, dtype: torch.dtype, backend: str) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        settings = model_class.Settings.read({"hidden_size": 128})
        own = model_class(settings, Signature(1, 10, "last"), generator).to(device, dtype)
        inputs = torch.rand(40, 50, 1, generator=generator).to(device, dtype)
        classes = torch.randint(10, (50,), generator=generator).to(device)
        with use_backend(backend):
            loss, penalty = cross_entropy(own(inputs)[0], classes), own.penalty()
            (loss if penalty is None else loss + penalty).backward()
        return {
            name: each.grad.detach().to("cpu", torch.float64)
            for name, each in own.named_parameters()
            if each.grad is not None
        }

    cpu = torch.device("cpu")
    exact = of_model(cpu, torch.float64, "reference")
    found = {"cpu": of_model(cpu, torch.float32, "reference")}
    forget_used()
    found["gpu"] = of_model(DEVICE, torch.float32, "auto")
    result: Job = {"backends": sorted(last_used())}
    whole = torch.cat([each.flatten() for each in exact.values()]).norm()
    for where, all_found in found.items():
        assert all_found.keys() == exact.keys()
        # A gradient that is far smaller than the others, or zero, is compared with the whole.
        errors = {
            name: float((all_found[name] - each).norm() / torch.maximum(each.norm(), 1e-4 * whole))
            for name, each in exact.items()
        }
        worst = max(errors, key=lambda name: (errors[name] != errors[name], errors[name]))
        result |= {f"{where} error": errors[worst], f"{where} worst": worst}
    return result


def poison() -> None:
    """Fill the memory that the next tensors reuse with NaN, so that an output that no kernel writes is seen."""
    torch.full((1 << 26,), torch.nan, device=DEVICE)


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
        operation, _, _ = of(job)
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


RUN = {"check": check, "gradients": gradients, "layer": layer, "model": model, "plans": time_plans}


def child(work: list[Job], numbers: list[int], log: Path) -> None:
    os.environ["ORTHOBENCH_SELF_TEST"] = "off"  # the jobs of kind check are the test
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with log.open("a") as stream:

        def write(record: Job) -> None:
            stream.write(json.dumps(record) + "\n")
            stream.flush()

        for number in numbers:
            write({"started": number})
            begun = time.time()
            try:
                result = RUN[work[number]["kind"]](work[number])
            except Exception as error:  # the next job may work, unless the context is broken
                result = {"failed": f"{type(error).__name__}: {str(error)[:400]}"}
            write({"job": number, **work[number], **result, "seconds": round(time.time() - begun, 2)})
            torch.cuda.synchronize()


def parent(work: list[Job], waiting: list[int], log: Path, options: list[str], end: float) -> None:
    """Run jobs in child processes, one after the other, until the time is over."""
    log.write_text("")
    while waiting and time.time() < end:
        command = [sys.executable, __file__, *options, "--log", str(log), "--child", ",".join(map(str, waiting))]
        process, size, changed = subprocess.Popen(command), -1, time.time()
        while process.poll() is None:
            time.sleep(0.2)
            if log.stat().st_size != size:
                size, changed = log.stat().st_size, time.time()
            if time.time() > end or time.time() - changed > SILENCE:
                process.kill()
                process.wait()
        records = [json.loads(line) for line in log.read_text().splitlines()]
        started = {record["started"] for record in records if "started" in record}
        ended = {record["job"] for record in records if "job" in record}
        with log.open("a") as stream:
            for number in started - ended:
                record = {"job": number, **work[number], "failed": f"its process ended ({process.returncode})"}
                stream.write(json.dumps(record) + "\n")
        left = [number for number in waiting if number not in started]
        if left == waiting:
            print("a child process did nothing")
            break
        waiting = left


def run_all(work: list[Job], folder: Path, options: list[str], end: float) -> list[Job]:
    """Run all jobs and return their records: first what is not timed, several at once, then the others.

    What is not timed also compiles the kernels that the timed models use.
    """
    untimed = [number for number, job in enumerate(work) if job["kind"] in ("check", "gradients")]
    timed = [number for number in range(len(work)) if number not in untimed]
    shares = [share for i in range(AT_ONCE) if (share := untimed[i::AT_ONCE])]
    logs = [folder / f"cuda_cells.{i}.jsonl" for i in range(len(shares) + 1)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda share, log: parent(work, share, log, options, end), shares, logs))
    parent(work, timed, logs[-1], options, end)
    records = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    found = sorted((record for record in records if "job" in record), key=lambda record: record["job"])
    (folder / "cuda_cells.jsonl").write_text("".join(json.dumps(record) + "\n" for record in found))
    for log in logs:
        log.unlink()
    return found


def table(records: list[Job], work: list[Job]) -> str:
    """Return the results as text."""
    lines = []
    checks = [record for record in records if record["kind"] == "check"]
    bad = [record for record in checks if not record.get("passed") and "skipped" not in record]
    skipped = [record for record in checks if "skipped" in record]
    passed = [record["error"] for record in checks if record.get("passed")]
    lines += [
        f"checks: {len(passed)} passed (largest error {max(passed, default=0):.1e}), {len(bad)} failed, "
        f"{len(skipped)} do not fit"
    ]
    for record in bad:
        what = f"{record['op']} form {record['form']} n={record['n']} B={record['batch']}"
        lines += [f"  {what}: {record.get('failed') or record.get('errors')}"]
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
    gradients = [record for record in records if record["kind"] == "gradients"]
    if gradients:
        lines += ["gradients of the models, largest relative error by parameter: GPU, CPU"]
    for record in sorted(gradients, key=lambda record: -record.get("gpu error", math.inf)):
        if "failed" in record:
            lines += [f"  {record['name']}: {record['failed']}"]
        elif record["gpu error"] > max(SHOWN, 4 * record["cpu error"]):
            errors = ", ".join(
                f"{record[f'{where} error']:.1e} ({record[f'{where} worst']})" for where in ("gpu", "cpu")
            )
            lines += [f"  {record['name']}: {errors}"]
    good = [record["gpu error"] for record in gradients if record.get("gpu error", math.inf) <= SHOWN]
    lines += [f"  {len(good)} of {len(gradients)} models within {SHOWN:.0e}"] if gradients else []
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
        times = {
            name: round(value, 2) for name, value in record.items() if isinstance(value, float) and name != "seconds"
        }
        lines += [f"{record['op']} {record['form']} n={record['n']} B={record['batch']}: {record.get('failed', times)}"]
    missing = len(work) - len(records)
    return "\n".join([*lines, f"{missing} jobs were not run"] if missing else lines)


def tables(records: list[Job]) -> str:
    """Return the tables of RESULTS_CUDA.md in Markdown."""
    passed = [record["error"] for record in records if record["kind"] == "check" and record.get("passed")]
    compared = [record for record in records if record["kind"] == "gradients" and "failed" not in record]
    lines = [f"{len(passed)} forms and sizes of the kernels are within {max(passed, default=0):.1e} of float64."]
    if compared:
        good = sum(record["gpu error"] <= SHOWN for record in compared)
        lines[0] += f"\nThe gradients of {good} of {len(compared)} models are within {SHOWN:.0e} of float64."
    lines += ["", "| layer | T, B, n | cuDNN | graph | ours | graph | x cuDNN, eager | x graph |"]
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
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tables:
        text = (options.tables / "cuda_cells.jsonl").read_text()
        page = ROOT / "workshop/benchmarks/RESULTS_CUDA.md"
        before, _, rest = page.read_text().partition(f"{BEGIN}\n")
        _, _, after = rest.partition(END)
        own = tables([record for record in map(json.loads, text.splitlines()) if "job" in record])
        page.write_text(f"{before}{BEGIN}\n{own}\n{END}{after}")
        return
    begun = time.time()
    work = [job for job in jobs() if job["kind"] in options.kinds.split(",")]
    if options.child:
        child(work, [int(number) for number in options.child.split(",")], options.log)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    print(torch.cuda.get_device_name(DEVICE), nvrtc.describe(DEVICE), flush=True)
    compile_all(work)
    print(f"compiled after {time.time() - begun:.0f} s", flush=True)
    records = run_all(work, options.out, ["--kinds", options.kinds], begun + options.seconds)
    text = table(records, work)
    (options.out / "cuda_cells.txt").write_text(text + "\n")
    print(f"{text}\n{time.time() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
