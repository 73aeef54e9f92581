"""Training steps on a CUDA runtime without a GPU: launches counted, waits for the device caught."""

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from support import cuda_stub

from orthobench.bench.shapes import SHAPES
from orthobench.model import OptimizerName
from orthobench.plugins import Catalog

pytest.importorskip("triton")

STEPS = Path(cuda_stub.__file__).with_name("steps.py")
T = 6
TINY = {"sequence_length": str(T), "train_size": "80", "test_size": "10", "batch_size": "10", "hidden_size": "8"}
# What is known of single models; any other model has to pass the checks without it.
ONE_LAUNCH_A_SEQUENCE = {"ablation", "antisymmetric", "antisymmetric_gated", "enrnn", "full_urnn", "irnn", "kru"}
ONE_LAUNCH_A_SEQUENCE |= {"ornn", "rnn", "scornn", "soft_orthogonal", "spectral_rnn", "wrnn"}
ONE_LAUNCH_A_SEQUENCE |= {"cornn", "goru", "gru", "ind_rnn", "lem", "lipschitz_rnn", "lstm", "slstm"}
COMPILED = dict.fromkeys(ONE_LAUNCH_A_SEQUENCE, 2)  # launches of own kernels in a training step
COMPILED |= {"pd_ssm": 4}
# Torch compiles some of its own kernels at run time, which the stub counts among those.
TORCH = {"lru", "linoss", "min_gru", "min_lstm", "urnn", "eurnn", "exprnn", "dtriv", "nnrnn", "scurnn", "mamba"}
CHUNKS = {"deltanet", "deltaproduct", "gated_deltanet", "gated_deltaproduct", "mlstm"}  # in torch's operations
CHUNKS |= {"mamba3", "rwkv7"}
LAUNCHES = dict.fromkeys((*COMPILED, *TORCH), 180)  # at most, of CUDA's own kernels
LAUNCHES |= {"dtriv": 240, "nnrnn": 220, "mamba": 240}
LAUNCHES |= {"enrnn": 560}  # the squarings of T, twice
LAUNCHES |= dict.fromkeys(CHUNKS, 340)  # those of one chunk, and of the short convolution
MOST = 500  # launches of any other model


def counts(environment: dict[str, str], jobs: list[list[object]], **more: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in cuda_stub.run(environment | more, STEPS, json.dumps(jobs)).splitlines()]


@cache
def waits() -> dict[str, str]:
    """Why the step of a model waits, by model; "" where it does not."""
    catalog = Catalog(())
    return {name: catalog.load("model", name).waits for name in catalog.names("model")}


def test_models_whose_step_waits_are_listed():
    """None of the built-in ones waits."""
    assert {name for name, reason in waits().items() if reason} == set()


@pytest.mark.slow
def test_every_model_trains_without_waiting(cuda_stub_environment):
    """One test, so that the models are trained once wherever tests run at once."""
    jobs = [[model, mode] for model, reason in waits().items() for mode in (["off"] if reason else ["off", "on"])]
    results = counts(cuda_stub_environment, [["adding", model, TINY, mode] for model, mode in jobs])
    for (model, mode), step in zip(jobs, results, strict=True):
        check_waits(model, step)
        (check_eager if mode == "off" else check_graph)(model, step)


def check_waits(model: str, step: dict[str, Any]) -> None:
    """No step waits for the device or copies to it, except in the listed models."""
    if waits()[model]:
        assert step["waits"], f"{model} is listed as waiting, and does not"
    else:
        assert not step["waits"], (model, step["callers"])
        assert not step["from_host"], model
    assert not step["allocations"], model


def check_eager(model: str, step: dict[str, Any]) -> None:
    if model in LAUNCHES:
        assert step["backends"] == ["cuda"], model
    if model in COMPILED:
        assert step["compiled"] == COMPILED[model], model
    assert step["launches"] <= LAUNCHES.get(model, MOST), model


def check_graph(model: str, step: dict[str, Any]) -> None:
    """The graph is recorded once; in addition, a step has the choice of the batch and its copy."""
    assert step["captures"] == 1, model
    assert step["graph_launches"] == 1, model
    assert step["forbidden"] == step["compiled"] == step["library"] == 0, model
    assert step["launches"] <= 10, model


@pytest.mark.slow
def test_optimisers_clipping_and_decay_fit_in_the_graph(cuda_stub_environment):
    names = [name for name in get_args(OptimizerName) if not name.startswith("cayley")]  # the defaults of other models
    settings = TINY | {"clip_norm": "1.0", "clip_value": "0.5", "epochs": "3", "learning_rate_decay": "0.5"}
    settings |= {"warmup": "0.2", "schedule": "cosine", "final_share": "0.01"}
    jobs = [["adding", "irnn", settings | {"optimizer": name}, "on"] for name in names]
    for name, step in zip(names, counts(cuda_stub_environment, jobs), strict=True):
        assert (step["graph_launches"], step["compiled"], step["waits"], step["from_host"]) == (1, 0, 0, 0), name


@pytest.mark.slow
def test_recurrence_without_a_c_compiler_runs_in_cuda(cuda_stub_environment, tmp_path):
    jobs = [["adding", "scornn", TINY, "off"]]
    (step,) = counts(cuda_stub_environment, jobs, CC="/bin/false", TRITON_CACHE_DIR=str(tmp_path))
    assert (step["backends"], step["compiled"]) == (["cuda"], 2)
    assert "compiler" in str(step["problem"])


TWO_GRAPHS = """
import torch
def record(freed):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        freed.clear()
    return graph
older = [record([])]
record(older)
print("recorded")
"""


@pytest.mark.slow
def test_a_graph_can_be_freed_while_another_is_recorded(cuda_stub_environment):
    """The garbage collector frees one at any time."""
    assert cuda_stub.run(cuda_stub_environment, "-c", TWO_GRAPHS) == "recorded\n"


WITHOUT_NVRTC = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
if sys.argv[1] == "no bindings":
    sys.modules["cuda.bindings.driver"] = None
import torch
from orthobench import nn
from orthobench.recurrence.cuda import nvrtc
from orthobench.recurrence.backends import forget_used, last_used
if sys.argv[1] == "old driver":
    driver = nvrtc.bindings().driver
    driver.cuModuleLoadData = lambda code: (driver.CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION, None)
for name in ("LSTM", "SLSTM"):
    forget_used()
    outputs, _ = getattr(nn, name)(3, 8, device="cuda")(torch.ones(5, 2, 3, device="cuda"))
    outputs.sum().backward()
    print(name, *last_used())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "reason"),
    [("no bindings", "cuda-bindings is not installed"), ("old driver", "the driver does not run NVRTC's code")],
)
def test_without_nvrtc_triton_or_pytorch_runs_with_the_reason(case, reason, cuda_stub_environment):
    lines = cuda_stub.run(cuda_stub_environment, "-c", WITHOUT_NVRTC, case).splitlines()
    assert [lines[0], lines[2]] == ["LSTM cuda", "SLSTM reference"]
    assert lines[1].startswith(f"slstm: not on back end cuda: {reason}")
    assert len(lines) == 3


UNUSUAL = """
import json, logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
import torch
from docs.cells import JANET, LayerNormGRU
from orthobench import nn
from orthobench.errors import UsageError
from orthobench.nn import compile
from orthobench.recurrence.cuda import nvrtc, plans
from orthobench.recurrence.backends import forget_used, last_used

def show(name, run):
    forget_used()
    try:
        outputs, _ = run()
        if outputs.numel():
            outputs.float().sum().backward()
        print(name, *sorted(last_used()), outputs.dtype, list(outputs.shape))
    except UsageError as error:
        print(name, error)

def on_gpu(*shape, **more):
    return torch.ones(*shape, device="cuda", **more)

layer = nn.LSTM(3, 33, device="cuda")
show("one step of one row:", lambda: layer(on_gpu(1, 1, 3)))
show("no row:", lambda: layer(on_gpu(4, 0, 3)))
show("no step:", lambda: layer(on_gpu(0, 2, 3)))
show("transposed:", lambda: layer(on_gpu(3, 2, 5).permute(2, 1, 0)))
show("bfloat16:", lambda: layer(on_gpu(4, 2, 3, dtype=torch.bfloat16)))
with torch.autocast("cuda", dtype=torch.bfloat16):
    show("autocast:", lambda: layer(on_gpu(4, 2, 3, dtype=torch.bfloat16)))
show("double:", lambda: nn.LSTM(3, 33, device="cuda", dtype=torch.float64)(on_gpu(4, 2, 3, dtype=torch.float64)))
torch.set_default_dtype(torch.float64)
show("default:", lambda: layer(on_gpu(4, 2, 3, dtype=torch.float32)))
torch.set_default_dtype(torch.float32)
own = {each: compile(each(3, 33).cuda()) for each in (JANET, LayerNormGRU)}
show("own cell:", lambda: own[JANET](on_gpu(4, 2, 3), on_gpu(2, 33)))
show("with a mean:", lambda: own[LayerNormGRU](on_gpu(4, 2, 3), on_gpu(2, 33)))
nvrtc.describe = lambda device: plans.GPU(90, {1: 14, 2: 7, 4: 2, 8: 0, 16: 0}, 232448)  # a slice of a GPU
from orthobench.recurrence.cuda import persistent
for cache in (persistent.plan, persistent.pair_of):
    cache.cache_clear()
show("small slice:", lambda: nn.SLSTM(3, 60, device="cuda")(on_gpu(4, 2, 3)))
lem = nn.LEM(3, 500, device="cuda")
show("full slice:", lambda: lem(on_gpu(4, 2, 3)))
show("other size:", lambda: nn.LEM(3, 60, device="cuda")(on_gpu(4, 2, 3)))
show("full again:", lambda: lem(on_gpu(4, 2, 3)))
"""


@pytest.mark.slow
def test_unusual_inputs_run_or_are_refused_in_one_line(cuda_stub_environment):
    """The stub computes nothing, so this shows which back end runs them; the emulator compares the numbers."""
    assert cuda_stub.run(cuda_stub_environment, "-c", UNUSUAL).splitlines() == [
        "one step of one row: cuda torch.float32 [1, 1, 33]",
        "no row: cuda torch.float32 [4, 0, 33]",
        "no step: inputs [0, 2, 3] should be [time, batch, features] or [time, features], "
        "with 3 features and at least one step",
        "transposed: cuda torch.float32 [5, 2, 33]",
        "bfloat16: inputs are torch.bfloat16, but the parameters are torch.float32: give inputs.to(torch.float32)",
        "autocast: cuda torch.bfloat16 [4, 2, 33]",
        "double: reference torch.float64 [4, 2, 33]",
        "default: cuda torch.float32 [4, 2, 33]",
        "own cell: cuda torch.float32 [4, 2, 33]",
        "LayerNormGRU runs as a loop in PyTorch: the CUDA kernels have no means over the units",
        "with a mean: torch.float32 [4, 2, 33]",
        "small slice: cuda torch.float32 [4, 2, 60]",
        "lem: not on back end cuda: the weights of 500 units do not fit into the registers of this GPU's largest "
        "cluster",
        "full slice: reference torch.float32 [4, 2, 500]",
        "other size: cuda torch.float32 [4, 2, 60]",
        "full again: reference torch.float32 [4, 2, 500]",
    ]


BENCH = """
import os, sys
os.chdir(sys.argv.pop(1))
sys.argv[1:] = ["bench", "--quick", "--rounds", "1", "--device", "cuda", "--json", *sys.argv[1:]]
from orthobench.__main__ import main
main()
"""


def bench(environment: dict[str, str], folder: Path, *options: str, before: str = "") -> list[dict[str, object]]:
    """The groups of rows of a benchmark on the stub."""
    printed = json.loads(cuda_stub.run(environment, "-c", before + BENCH, folder, *options))
    assert printed["environment"]["accelerator"]
    assert printed["quick"]
    return list(printed["shapes"])


@pytest.mark.slow
def test_benchmark_of_recurrences_times_kernels_and_graphs(cuda_stub_environment, tmp_path):
    shapes = bench(cuda_stub_environment, tmp_path)
    assert len(shapes) == len(SHAPES)
    for shape in shapes:
        rows = {row["implementation"]: row for row in shape["rows"]}
        assert {"eager loop", "reference", "cuda", "cuda, graph"} <= rows.keys(), shape["left_out"]
        assert all(row["seconds"] > 0 for row in rows.values())


@pytest.mark.slow
def test_kernel_that_does_not_launch_costs_no_other_row(cuda_stub_environment, tmp_path):
    before = """
from orthobench.recurrence.ops.plain.cuda import Recurrence
def forward(*arguments):
    raise RuntimeError("CUDA error: no kernel image is available")
Recurrence.forward = forward
"""
    (shape,) = bench(cuda_stub_environment, tmp_path, "--shape", "mnist-170", before=before)
    assert {row["implementation"] for row in shape["rows"]} == {"sgemm", "eager loop", "reference"}
    assert shape["left_out"]["cuda"] == shape["left_out"]["cuda, graph"] == "CUDA error: no kernel image is available"


@pytest.mark.slow
def test_models_are_timed(cuda_stub_environment, tmp_path):
    assert all(shape["rows"] for shape in bench(cuda_stub_environment, tmp_path, "--models"))


def test_process_that_checks_options_opens_no_context(cuda_stub_environment):
    code = """
import ctypes, torch
from orthobench.training.device import check_backend, pick_device
for name in ("auto", "cuda", "reference"):
    check_backend(name, pick_device("auto"))
runtime = ctypes.CDLL(None)
print(pick_device("auto"), runtime.stub_count(0), runtime.stub_count(4))
"""
    assert cuda_stub.run(cuda_stub_environment, "-c", code).split() == ["cuda", "0", "0"]


def test_stub_counts_device_waits(cuda_stub_environment):
    code = """
import ctypes, torch
x, runtime = torch.zeros(3, device="cuda"), ctypes.CDLL(None)
runtime.stub_reset()
x.sum().item(); (x @ x); x.copy_(torch.ones(3))
print(*(runtime.stub_count(i) for i in (1, 2, 3)))
"""
    waited, library, from_host = cuda_stub.run(cuda_stub_environment, "-c", code).split()
    assert int(waited) >= 2  # of the number, and of memory that is not pinned
    assert (library, from_host) == ("1", "1")
