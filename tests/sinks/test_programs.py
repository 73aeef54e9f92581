"""The programs that people open: TensorBoard and MLflow, started as servers and asked by HTTP.

Weights & Biases has no reader for offline runs but a terminal program; `support/destinations.py` reads its format.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from support.destinations import as_sent, stored
from support.records import key_of, run_record

import orthobench as ob
from orthobench.store import MetricRow, Status, TraceRow, open_store

KEYS = [key_of(seed) for seed in range(2)]
TINY = {"sequence_length": 10, "train_size": 40, "test_size": 20, "batch_size": 10, "epochs": 3, "hidden_size": 8}


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> str:
    """A database with two finished runs."""
    file = str(tmp_path_factory.mktemp("programs") / "r.db")
    with open_store(file, create=True) as store:
        for number in range(2):
            run = store.start(run_record(seed=number), {"cpu": "a"}, ["kept"])
            rows = [MetricRow("test", "mse", 0, i, number + 1 / (i + 3)) for i in range(0, 30, 10)]
            vectors = [TraceRow("gradient_norm/h", 0, i, [0.5, 2.0, float(i)]) for i in range(0, 30, 10)]
            store.log(run.id, rows, vectors, {"status": Status.FINISHED, "iterations": 20})
    return file


def series(store, kind: str, key: str) -> dict[str, list[tuple[int, float]]]:
    """The curves of a run in the database, as this destination holds them."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for (name, iteration), value in as_sent(kind, stored(store, key)).items():
        curves.setdefault(name, []).append((iteration, value))
    return {name: sorted(points) for name, points in curves.items()}


@contextmanager
def server(module: str, *options: str) -> Iterator[str]:
    """Run a program on a free port of this machine, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", module, *options, "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"NO_PROXY": "127.0.0.1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def ask(address: str, content: dict | None = None):
    """The JSON that a server answers; waits for a server that is not there yet, on a busy machine for minutes."""
    data = None if content is None else json.dumps(content).encode()
    for _ in range(4000):
        try:
            with urlopen(Request(address, data, {"Content-Type": "application/json"}), timeout=30) as answer:
                return json.loads(answer.read())
        except (URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(f"{address} does not answer")


@pytest.fixture(scope="module")
def tensorboard(database, tmp_path_factory) -> Iterator[tuple[str, str, str]]:
    """TensorBoard with its default loader on an export and a live run: its address, and the live database and key."""
    pytest.importorskip("tensorboard", reason="the extra orthobench[tensorboard] is not installed")
    folder = tmp_path_factory.mktemp("tensorboard")
    with ob.open_results(database) as results:
        results.export(f"tensorboard:{folder}/logs/exported")
    live = str(folder / "live.db")
    options = ob.RunOptions(log_to=(f"tensorboard:{folder}/logs/live",))
    run = ob.run("adding", "gru", settings=TINY, db=live, options=options)
    with server("tensorboard.main", "--logdir", str(folder / "logs")) as address:
        for _ in range(600):  # it loads in the background
            if len(ask(f"{address}/data/runs")) == 3:
                break
            time.sleep(0.1)
        yield address, live, run.key


def test_tensorboard_shows_the_curves_of_an_export(tensorboard, database):
    address, _, _ = tensorboard
    with open_store(database) as store:
        for key in KEYS:
            shown_by_tensorboard(address, f"exported/{key}", series(store, "tensorboard", key))


def test_tensorboard_shows_the_curves_of_a_live_run(tensorboard):
    address, live, key = tensorboard
    with open_store(live) as store:
        shown_by_tensorboard(address, f"live/{key}", series(store, "tensorboard", key))


def shown_by_tensorboard(address: str, run: str, curves: dict[str, list[tuple[int, float]]]) -> None:
    assert curves
    tags = ask(f"{address}/data/plugin/scalars/tags")
    assert set(tags.get(run, {})) == set(curves)
    for name, points in curves.items():
        rows = ask(f"{address}/data/plugin/scalars/scalars?{urlencode({'run': run, 'tag': name})}")
        assert [(step, value) for _, step, value in rows] == points, name


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory) -> Iterator[str]:
    """MLflow's tracking server; the package mlflow-skinny has no parts of it."""
    pytest.importorskip("mlflow", reason="the extra orthobench[mlflow] is not installed")
    if not all(find_spec(name) for name in ("flask", "flask_cors", "aiohttp")):
        pytest.skip("the package mlflow with its server is not installed")
    folder = tmp_path_factory.mktemp("mlflow")
    storage = ["--backend-store-uri", f"sqlite:///{folder}/m.db", "--default-artifact-root", str(folder / "artifacts")]
    with server("mlflow", "server", "--workers", "1", *storage) as address:
        ask(f"{address}/api/2.0/mlflow/experiments/search", {"max_results": 1})
        yield address


@pytest.mark.slow
def test_mlflow_server_has_the_curves_and_the_export_prints_one_line(mlflow, database):
    command = [sys.executable, "-m", "orthobench", "db", "export", "--db", database, "--to", f"mlflow:{mlflow}"]
    environment = os.environ | {"NO_PROXY": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"2 runs sent to mlflow:{mlflow}\n"
    api = f"{mlflow}/api/2.0/mlflow"
    experiment = ask(f"{api}/experiments/get-by-name?experiment_name=orthobench")["experiment"]["experiment_id"]
    runs = ask(f"{api}/runs/search", {"experiment_ids": [experiment]})["runs"]
    ids = {run["info"]["run_name"]: run["info"]["run_id"] for run in runs}
    assert set(ids) == set(KEYS)
    with open_store(database) as store:
        for key in KEYS:
            for name, points in series(store, "mlflow", key).items():
                history = ask(f"{api}/metrics/get-history?{urlencode({'run_id': ids[key], 'metric_key': name})}")
                rows = [(int(row.get("step", 0)), float(row["value"])) for row in history["metrics"]]
                assert sorted(rows) == points, name
