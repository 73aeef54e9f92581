"""Sweeps on a Ray cluster of two nodes on this machine, with a PostgreSQL server, and a node killed half-way."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from support.sweeps import iterations, numbers, slow_model, sweeps_in, wait_for

from orthobench.errors import UsageError
from orthobench.executors.job import Job
from orthobench.executors.ray import RayCluster
from orthobench.options.run_options import SweepOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import Status, open_store
from orthobench.system.location import Location
from orthobench.training.checkpoint import CheckpointFolder

TESTS = Path(__file__).parent.parent


def on_a_cluster(test):
    """A test that takes its time, and needs Ray."""
    missing = pytest.mark.skipif(find_spec("ray") is None, reason="the extra orthobench[ray] is not installed")
    return pytest.mark.slow(pytest.mark.ray(missing(test)))


@contextmanager
def started(nodes: int):
    """A cluster: its addresses, and the process ids of its nodes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, TESTS / "support" / "ray_cluster.py", str(nodes), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        yield json.loads(next(line for line in lines if line.startswith("{")))
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def two_nodes():
    with started(2) as cluster:
        yield cluster


@pytest.fixture
def sweep(tmp_path):
    """Start sweeps on a cluster, in processes that end with the test."""
    with sweeps_in(tmp_path) as start:

        def begin(cluster: dict, *arguments: str, executor: str = "ray") -> subprocess.Popen[str]:
            return start(executor, {"RAY_ADDRESS": cluster["address"]}, *arguments)

        yield begin


def lose(raylet: int) -> None:
    """What a machine's end looks like: all its processes stop at once."""
    node = psutil.Process(raylet)
    node.suspend()  # so that it starts nothing new while its workers are killed
    for worker in node.children(recursive=True):
        with suppress(psutil.Error):
            worker.kill()
    node.kill()


def seeds_on(raylet: int) -> list[int]:
    """The seeds of the runs that are under way on a node: Ray names its processes after the tasks."""
    titles = []
    for worker in psutil.Process(raylet).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            titles.append(" ".join(worker.cmdline()))
    return [int(title.split("seed ")[1].split()[0]) for title in titles if "slow seed" in title]


@on_a_cluster
def test_cluster_without_shared_storage_is_refused_and_a_client_works(
    two_nodes, postgres, sweep, tmp_path, tiny_options
):
    grid = ("--models", "rnn", *tiny_options)
    refused = [
        (("--db", "r.db"), "cannot share the database r.db: SQLite's locks", two_nodes["client"]),
        (("--db", postgres), "need their checkpoints there: name a folder that all machines see", "ray"),
    ]
    running = [sweep(two_nodes, *grid, *arguments, executor=executor) for arguments, _, executor in refused]
    for process, (_, line, _) in zip(running, refused, strict=True):
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 2, out
        assert line in out
    assert not (tmp_path / "r.db").exists()
    where = ("--db", postgres, "--checkpoints", str(tmp_path / "shared"))
    out, _ = (process := sweep(two_nodes, *grid, *where, executor=two_nodes["client"])).communicate(timeout=300)
    assert process.returncode == 0, out
    assert [run[0] for run in numbers(postgres).values()] == [Status.FINISHED]


@on_a_cluster
def test_stopped_sweep_that_loses_a_node_ends_with_uninterrupted_numbers(
    two_nodes, postgres, sweep, tmp_path, tiny, orthobench
):
    settings = tiny | {"train_size": "10000", "evaluate_every": "50"}  # 3,000 iterations
    plugin, slow = slow_model(tmp_path, steps=150)
    grid = ("--models", "slow", "--plugin", str(plugin), "--seeds", "2")
    grid += tuple(x for k, v in settings.items() for x in ("-s", f"{k}={v}"))
    assert orthobench("sweep", "adding", *grid, "-j", "0", "--db", "uncut.db").code == 0
    uncut = numbers(str(tmp_path / "uncut.db"))
    shared = tmp_path / "shared"
    arguments = (*grid, "--db", postgres, "--checkpoints", str(shared), "--checkpoint-every", "0")

    slow.touch()
    stopped = sweep(two_nodes, *arguments)
    wait_for(lambda: len(at := iterations(postgres)) == 2 and min(at.values()) >= 100, stopped)
    stopped.send_signal(signal.SIGINT)
    out, _ = stopped.communicate(timeout=300)
    assert stopped.returncode == 130, out
    assert "the same command resumes" in out
    iterations_at_stop = iterations(postgres)
    assert {run[0] for run in numbers(postgres).values()} == {Status.INTERRUPTED}
    assert all(CheckpointFolder(shared, key).exists() for key in uncut)

    again = sweep(two_nodes, *arguments)
    lost = two_nodes["raylets"][1]
    wait_for(lambda: any(iterations(postgres)[seed] >= iterations_at_stop[seed] + 50 for seed in seeds_on(lost)), again)
    lose(lost)
    slow.unlink()
    out, _ = again.communicate(timeout=300)
    assert again.returncode == 0, out
    assert out.count("resumes from its last checkpoint") == 1, out
    assert numbers(postgres) == uncut


CRASHING = """
import os, signal
import torch
from orthobench.models.rnn import RNN


class Crashing(RNN):
    def after_step(self):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@on_a_cluster
def test_file_database_works_on_one_machine_and_a_crashing_run_fails_alone(sweep, tmp_path, tiny_options):
    (tmp_path / "crashing.py").write_text(CRASHING)
    with started(1) as cluster:
        both = ("--models", "crashing,rnn", "--plugin", "crashing.py", *tiny_options, "--db", "r.db")
        out, _ = (process := sweep(cluster, *both)).communicate(timeout=300)
    assert process.returncode == 1, out
    assert out.count("was lost at iteration 0") == 2
    assert "1 of 2 runs failed" in out
    endings = {model: (status, message) for model, status, message in _endings(tmp_path / "r.db")}
    assert endings["rnn"] == (Status.FINISHED, None)
    assert endings["crashing"][0] == Status.FAILED
    assert "worker died" in endings["crashing"][1].lower()


def _endings(database: Path):
    with open_store(str(database)) as store:
        return [(run.model, run.status, run.message) for run in store.runs()]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--executor", "lsf"), "give local, ray, ray://host:10001, or slurm"),
        (("--executor", "ray", "-j", "0"), "-j 0 is for runs in this process"),
        (("--threads", "2"), "--threads is for --executor ray and --executor slurm"),
        (("--executor", "ray", "-j", "1"), "pip install -e '.[ray]' in the checkout"),
    ],
)
def test_invalid_options_are_refused(orthobench, tiny_options, monkeypatch, arguments, line):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = orthobench("sweep", "adding", "--models", "rnn", *tiny_options, *arguments)
    assert done.code == 2
    assert line in done.err


class _Ray:
    """Takes the place of Ray, and notes what a task is placed by."""

    def __init__(self, *nodes: dict[str, float]) -> None:
        self.resources = nodes
        self.options: dict[str, Any] = {}

    def init(self, *_, **__):
        pass

    def shutdown(self):
        pass

    def nodes(self):
        return [{"Alive": True, "Resources": resources} for resources in self.resources]

    def cluster_resources(self):
        return {kind: sum(node.get(kind, 0) for node in self.resources) for kind in ("CPU", "GPU")}

    def remote(self, **options):
        self.options = options
        return lambda task: SimpleNamespace(remote=lambda *arguments: arguments)


SERVER = "postgresql://me@nowhere/results"


@pytest.mark.parametrize(
    ("device", "threads", "share", "limit", "cpus", "gpus", "room"),
    [
        ("auto", 1, 1, None, 1, 1, 4),
        ("auto", 2, 4, None, 2, 0.25, 16),
        ("cuda", 1, 1, 3, 1, 1, 3),
        ("cpu", 3, 1, None, 3, None, 10),
    ],
)
def test_run_is_placed_by_its_cpus_and_gpu_share(monkeypatch, tiny, device, threads, share, limit, cpus, gpus, room):
    ray = _Ray({"CPU": 16, "GPU": 4}, {"CPU": 16})
    monkeypatch.setitem(sys.modules, "ray", ray)
    spec = resolve(Catalog(), "adding", "rnn", tiny).spec
    options = SweepOptions(
        executor="ray", checkpoints="s3://bucket", device=device, threads=threads, gpu_share=share, jobs=limit
    )
    with closing(RayCluster(Location(SERVER), options)) as cluster:
        job, resumed = cluster.submit(Job(spec, "a", Location(SERVER)), resumed=False)
        assert cluster.room() == room
    assert (ray.options["num_cpus"], ray.options.get("num_gpus")) == (cpus, gpus)
    assert ray.options["max_retries"] == 0
    assert cluster.device == ("cpu" if gpus is None else "cuda")
    assert (job.threads, resumed) == (threads, False)


def test_gpu_share_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", _Ray({"CPU": 4}))
    with pytest.raises(UsageError, match="`gpu_share` is for runs on GPUs"):
        RayCluster(Location(SERVER), SweepOptions(executor="ray", gpu_share=2))
