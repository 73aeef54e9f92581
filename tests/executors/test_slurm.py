"""Sweeps on a SLURM cluster of one node on this machine: grouped, cut off, killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import slurm
from support.sweeps import iterations, numbers, slow_model, sweeps_in, wait_for

from orthobench.errors import UsageError
from orthobench.executors.job import Job
from orthobench.executors.slurm import SlurmCluster
from orthobench.executors.slurm_settings import read_settings
from orthobench.options.run_options import SweepOptions
from orthobench.plugins import Catalog
from orthobench.session.session import open_session
from orthobench.spec.resolve import resolve
from orthobench.store import Status, open_store
from orthobench.system.location import Location
from orthobench.training.checkpoint import CheckpointFolder

SERVER = "postgresql://me@nowhere/results"
ON_SLURM = SweepOptions(executor="slurm", checkpoints="memory://bucket")


def on_slurm(test):
    """A test that takes its time, and needs SLURM."""
    reason = slurm.missing() or "the extra orthobench[slurm] is not installed"
    missing = pytest.mark.skipif(bool(slurm.missing()) or find_spec("submitit") is None, reason=reason)
    return pytest.mark.slow(pytest.mark.slurm(missing(test)))


@pytest.fixture(scope="module")
def cluster():
    started = slurm.Cluster()
    yield started
    started.remove()


@pytest.fixture
def sweep(cluster, tmp_path):
    """Start sweeps on the cluster, in processes that end with the test."""
    with sweeps_in(tmp_path) as start:
        yield partial(start, "slurm", cluster.environment)


def output(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=300)[0]


CRASHING = """
import os, signal
from orthobench.models.rnn import RNN


class Crashing(RNN):
    def after_step(self):
        if "SLURM_JOB_ID" in os.environ:  # and not where its first steps are timed
            os.kill(os.getpid(), signal.SIGKILL)
"""


@on_slurm
def test_runs_are_grouped_by_time_and_a_crash_ends_one_run(cluster, sweep, tmp_path, tiny_options, orthobench):
    (tmp_path / "crashing.py").write_text(CRASHING)
    grid = ("--models", "crashing,rnn", "--plugin", "crashing.py", *tiny_options, "--db", "r.db")
    together = sweep(*grid, "--seeds", "2")
    text = output(together)
    assert together.returncode == 1, text
    assert "2 of 4 runs failed" in text
    assert "4 run(s) in 1 task(s)" in text
    with open_store(str(tmp_path / "r.db")) as store:
        endings = {(run.model, run.seed): (run.status, run.message) for run in store.runs()}
    assert endings["rnn", 0] == endings["rnn", 1] == (Status.FINISHED, None)
    assert endings["crashing", 0] == (Status.FAILED, "killed by signal 9 (out of memory?)")

    alone = sweep("--models", "rnn", *tiny_options, "--db", "r.db", "--seeds", "5", "--group-minutes", "1e-9")
    text = output(alone)
    assert alone.returncode == 0, text
    assert "3 run(s) in 3 task(s)" in text
    numbers_of_jobs = text.split("SLURM job ")[1].split(":")[0].split(", ")
    assert len(numbers_of_jobs) == 2  # this cluster's arrays have at most two tasks
    assert orthobench("sweep", "adding", "--models", "rnn", "--seeds", "5", *tiny_options, "--db", "here.db").code == 0
    on_the_cluster = {key: run for key, run in numbers(str(tmp_path / "r.db")).items() if run[0] == Status.FINISHED}
    assert on_the_cluster == numbers(str(tmp_path / "here.db"))
    assert cluster.call("squeue", "--noheader") == ""


@on_slurm
def test_stopped_sweep_and_killed_task_end_with_uninterrupted_numbers(cluster, sweep, tmp_path, tiny, orthobench):
    settings = tiny | {"train_size": "10000", "evaluate_every": "50"}  # 3,000 iterations
    plugin, slow = slow_model(tmp_path, steps=150)
    grid = ("--models", "slow", "--plugin", str(plugin), "--seeds", "2")
    grid += tuple(x for k, v in settings.items() for x in ("-s", f"{k}={v}"))
    assert orthobench("sweep", "adding", *grid, "-j", "0", "--db", "uncut.db").code == 0
    uncut, database = numbers(str(tmp_path / "uncut.db")), str(tmp_path / "r.db")
    arguments = (*grid, "--db", "r.db", "--checkpoint-every", "0", "--group-minutes", "1e-9")

    slow.touch()
    stopped = sweep(*arguments)
    wait_for(lambda: len(at := iterations(database)) == 2 and min(at.values()) >= 100, stopped)
    stopped.send_signal(signal.SIGINT)
    text = output(stopped)
    assert stopped.returncode == 130, text
    assert "the SLURM jobs are cancelled: runs in training write their checkpoints" in text
    assert "the same command resumes" in text
    assert cluster.call("squeue", "--noheader", "--states=PENDING,RUNNING") == ""
    at_stop = iterations(database)
    assert {run[0] for run in numbers(database).values()} == {Status.INTERRUPTED}
    assert all(CheckpointFolder(tmp_path / "r.db.checkpoints", key).exists() for key in uncut)

    again = sweep(*arguments)
    wait_for(lambda: all(at >= at_stop[seed] + 50 for seed, at in iterations(database).items()), again)
    task = cluster.call("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%F_%K").split()[0]
    cluster.call("scancel", "--signal=KILL", "--batch", task)
    slow.unlink()
    text = output(again)
    assert again.returncode == 0, text
    assert text.count("resumes from iteration") == 1, text
    assert numbers(database) == uncut


@on_slurm
def test_cancelled_task_is_not_submitted_again(cluster, sweep, tmp_path, tiny):
    settings = tiny | {"train_size": "10000", "evaluate_every": "50"}
    plugin, slow = slow_model(tmp_path, steps=150)
    grid = ("--models", "slow", "--plugin", str(plugin), *(x for k, v in settings.items() for x in ("-s", f"{k}={v}")))
    slow.touch()
    cancelled = sweep(*grid, "--db", "r.db")
    wait_for(lambda: any(at >= 100 for at in iterations(str(tmp_path / "r.db")).values()), cancelled)
    number = cluster.call("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()[0]
    cluster.call("scancel", number)
    text = output(cancelled)
    assert cancelled.returncode == 130, text
    assert f"SLURM job {number} was cancelled from outside" in text
    assert text.count("run(s) in 1 task(s)") == 1
    assert {run[0] for run in numbers(str(tmp_path / "r.db")).values()} == {Status.INTERRUPTED}


@on_slurm
def test_refusal_of_slurm_is_one_line_and_leaves_no_database(sweep, tmp_path, tiny_options):
    grid = ("--models", "rnn", *tiny_options, "--db", "r.db", "--slurm")
    refused = [
        ("partition=nope", "error: SLURM has no partition 'nope': give partition=batch in --slurm"),
        ("mem=900G", "Requested node configuration is not available: change --slurm"),
        ("frob=1", "sbatch: unrecognized option '--frob=1': change --slurm"),
    ]
    running = [(sweep(*grid, text), line) for text, line in refused]
    for process, line in running:
        out = output(process)
        assert process.returncode == 2, out
        assert out.count("\n") == 1
        assert line in out
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs in place of SLURM's, which answer as on a cluster with these nodes."""
    pytest.importorskip("submitit", reason="the extra orthobench[slurm] is not installed")

    def write(*nodes: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        names = "\\n".join(nodes)
        answers = {"sinfo": f"""case "$*" in *%R*) echo batch;; *) printf '{names}\\n';; esac"""}
        for name in ("sinfo", "sbatch", "squeue", "scancel", "srun", "scontrol"):
            (folder / name).write_text(f"#!/bin/sh\n{answers.get(name, 'true')}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return write


def test_several_nodes_need_a_server_and_shared_checkpoints(programs, orthobench, tiny_options, tmp_path):
    programs("node1", "node2")
    command = ("sweep", "adding", "--models", "rnn", *tiny_options, "--executor", "slurm", "-j", "1")
    done = orthobench(*command, "--db", "r.db")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "cannot share the database r.db: SQLite's locks" in done.err
    assert not (tmp_path / "r.db").exists()
    done = orthobench(*command, "--db", SERVER)
    assert done.code == 2
    assert "need their checkpoints there: name a folder that all machines see" in done.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--slurm", "partition=a"), "--slurm and --group-minutes are for --executor slurm"),
        (("--executor", "slurm", "-j", "1", "--group-minutes", "0"), "--group-minutes 0.0: should be greater than 0"),
        (("--executor", "slurm", "-j", "1"), "needs submitit: pip install -e '.[slurm]' in the checkout"),
        (("--executor", "slurm", "-j", "1", "--slurm", "array=0-3"), "--slurm array: orthobench sets this option"),
    ],
)
def test_invalid_options_are_refused(orthobench, tiny_options, monkeypatch, arguments, line):
    monkeypatch.setitem(sys.modules, "submitit", None)
    done = orthobench("sweep", "adding", "--models", "rnn", *tiny_options, *arguments)
    assert done.code == 2
    assert line in done.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--slurm", "no.toml"), "error: --slurm no.toml cannot be read"),
        (("--slurm", "gpus=1", "--device", "cpu"), "error: --device cpu uses no GPU"),
        (("--slurm", "gpus=1"), ""),
        (("--device", "cuda"), ""),
    ],
)
def test_dry_run_checks_the_options_and_needs_neither_the_cluster_nor_its_devices(
    orthobench, tiny_options, monkeypatch, tmp_path, words, line
):
    monkeypatch.setenv("PATH", str(tmp_path))  # which has no program of SLURM
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    command = ("sweep", "adding", "--models", "rnn", *tiny_options, "--executor", "slurm", "-j", "1", "--dry-run")
    done = orthobench(*command, *words)
    assert (done.code, line in done.err) == (2 if line else 0, True), done.err
    assert ("1 run without an estimate" in done.out) is not bool(line)
    assert " at once" not in done.out
    assert list(tmp_path.iterdir()) == []


def test_machine_without_a_controller_is_told_so_in_one_line(programs, orthobench, tiny_options, tmp_path):
    """As sinfo says it, whose first line names the look-up of the controller."""
    programs("node1")
    lines = ["resolve_ctls_from_dns_srv: res_nsearch error: Unknown host", "Could not establish a configuration source"]
    text = "".join(f"echo 'sinfo: {kind}: {line}' >&2; " for kind, line in zip(("error", "fatal"), lines, strict=True))
    (tmp_path / "bin" / "sinfo").write_text(f"#!/bin/sh\n{text}\nexit 1\n")
    done = orthobench("sweep", "adding", "--models", "rnn", *tiny_options, "--executor", "slurm", "-j", "1")
    assert done.code == 2
    assert done.err.splitlines() == [
        "error: no SLURM controller answers this machine: run the command on a login node of the cluster"
    ]


def test_missing_slurm_names_the_program(orthobench, tiny_options, monkeypatch, tmp_path):
    pytest.importorskip("submitit", reason="the extra orthobench[slurm] is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = orthobench("sweep", "adding", "--models", "rnn", *tiny_options, "--executor", "slurm", "-j", "1")
    assert done.code == 2
    assert "needs SLURM's sbatch, which is not on this machine: run the command on a login node" in done.err


def test_sbatch_options_come_from_words_and_files(tmp_path):
    file = tmp_path / "gpu.toml"
    file.write_text('partition = "gpu"\nmem = "8G"\nexclusive = true\nrequeue = false\nfolder = "/shared/logs"\n')
    settings = read_settings([str(file), "mem=16G,exclude=n1,n2,gpus-per-node=2"])
    assert settings.options == {
        "partition": "gpu",
        "mem": "16G",
        "exclusive": True,
        "exclude": "n1,n2",
        "gpus_per_node": "2",
    }
    assert settings.arguments()[2:4] == ["--exclusive", "--exclude=n1,n2"]
    assert settings.asks_for_gpus
    assert settings.folder == Path("/shared/logs")
    assert read_settings(["gres=gpu:1"]).asks_for_gpus
    assert not read_settings(["gres=lustre:1"]).asks_for_gpus
    for text, line in [("=a", "write options of sbatch"), ("x.toml", "cannot be read"), ("time=", "write options")]:
        with pytest.raises(UsageError, match=line):
            read_settings([text])


@pytest.mark.parametrize(
    ("device", "words", "expected"),
    [("auto", (), "cpu"), ("auto", ("gpus=1",), "cuda"), ("cuda", (), "cuda")],
)
def test_gpu_is_requested_for_gpu_runs_alone(programs, device, words, expected):
    programs("node1")
    cluster = SlurmCluster(Location(SERVER), replace(ON_SLURM, slurm=words, device=device))
    assert cluster.device == expected
    assert ("gpus_per_node" in cluster.settings.options) == (device == "cuda")
    with pytest.raises(UsageError, match="`device='cpu'` uses no GPU"):
        SlurmCluster(Location(SERVER), replace(ON_SLURM, slurm=("gpus=1",), device="cpu"))


@pytest.mark.parametrize("given", [None, Path("data")])
def test_job_for_a_cluster_names_a_data_folder_only_if_the_user_does(tmp_path, tiny, given):
    """Its machines have data folders of their own."""
    options = SweepOptions(executor="slurm", slurm=("gpus=1",), data_folder=given)
    with open_session(tmp_path / "r.db", options, dry_run=True) as session:
        job = session.job(resolve(Catalog(), "adding", "rnn", tiny), "a")
    assert (job.options.data_folder, job.options.device) == (given and given.absolute(), "cuda")


def test_folder_of_the_user_keeps_its_permissions(programs, tmp_path, tiny):
    """The tasks' files are in a folder below it, which each sweep makes for itself and nobody else can enter."""
    programs("node1")
    lab = tmp_path / "lab"
    lab.mkdir()
    lab.chmod(0o2775)
    own = []
    for _ in range(2):
        cluster = SlurmCluster(Location(SERVER), replace(ON_SLURM, slurm=(f"folder={lab}",)))
        assert not cluster.folder.exists()
        spec = resolve(Catalog(), "adding", "rnn", tiny).spec
        with pytest.raises(UsageError, match="sbatch refused the runs"):  # the programs here answer nothing
            cluster.submit([[Job(spec, "rnn", Location(SERVER))]], frozenset(), cluster.folder / "spent", 1.0)
        own.append(cluster.folder)
    assert lab.stat().st_mode & 0o7777 == 0o2775
    assert sorted(lab.iterdir()) == sorted(own)
    assert {folder.stat().st_mode & 0o777 for folder in own} == {0o700}
    assert all(any(folder.iterdir()) for folder in own)


def test_groups_fill_the_minutes_and_a_run_without_estimate_is_alone(programs, tiny):
    programs("node1")
    cluster = SlurmCluster(Location(SERVER), replace(ON_SLURM, group_minutes=2))
    jobs = [Job(resolve(Catalog(), "adding", "rnn", tiny, seed=n).spec, str(n), Location(SERVER)) for n in range(7)]
    estimates = [50.0, 50.0, 50.0, None, 20.0, 500.0, 20.0]
    seconds = {job.spec.key: value for job, value in zip(jobs, estimates, strict=True)}
    labels = [[job.label for job in group] for group in cluster.groups(jobs, seconds)]
    assert labels == [["0", "1"], ["2"], ["3"], ["4"], ["5"], ["6"]]
