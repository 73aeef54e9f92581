"""Use a machine with a GPU for some minutes: test the kernels, time them, and train the papers' runs.

    python -m workshop.gpu prepare              collect in gpu/ what a machine without network needs
    python -m workshop.gpu run --minutes 12     test, time and train on the GPU; write everything to gpu/results/N/
    python -m workshop.gpu fold                 merge gpu/results/ into results.db and its folder of checkpoints

`run` needs Python, PyTorch for CUDA and pytest. `prepare` packs the other packages as wheels for the Python of that
machine, the commit of the checkout, the compiled C kernels, and the data sets of checks/papers.toml. Each step of
`run` has its own share of the time and its own processes, so a failed step costs the others nothing, and each step's
output is kept. No command deletes results: each `run` has a folder of its own, `prepare` refuses to start while one of
them waits to be folded, and `fold` moves what it has merged to gpu/folded/.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("gpu")
MISSING = ("orthobench", "fsspec", "jinja2", "hypothesis", "pytest", "soundfile")
"""Packages that a machine with PyTorch may lack, with those of the tests. Their requirements come along, except for
what PyTorch brings."""
DATA = ("mnist", "ptb", "cifar10")
"""The data sets of checks/papers.toml whose files are packed if they are here."""
LIST = Path("checks/papers.toml")
RESULTS = Path("results.db")
DATABASE = FOLDER / "runs.db"
"""The database into which that machine's runs and benchmarks go, with the list's results of before."""
KERNELS = Path("orthobench/recurrence/cpu")
GPU_TESTS = ("tests/recurrence", "tests/training", "tests/bench")
"""The folders with tests marked `gpu`; the others need packages that a machine with a GPU may lack."""
PACKING = 15.0
"""Seconds for stopping the runs and packing the results."""
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17, 5)] + [
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]


@dataclass(frozen=True)
class GPUStep:
    """A command on the GPU machine.

    Attributes:
        name: the name of its log.
        words: the words after `python -m`.
        share: the share of the whole time after which it is stopped; None means all that is left.
    """

    name: str
    words: Sequence[str]
    share: float | None


def main() -> int:
    """Run a command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_parser = commands.add_parser("prepare", help="collect what a machine without network needs")
    prepare_parser.add_argument("--python", default="3.12", help="the Python of the machine with the GPU")
    prepare_parser.add_argument("--list", type=Path, default=LIST, help="the runs to train")
    run_parser = commands.add_parser("run", help="test, time and train on this machine's GPU")
    run_parser.add_argument("--minutes", type=float, default=12.0, help="time limit")
    run_parser.add_argument("--list", type=Path, default=LIST, help="the runs to train")
    run_parser.add_argument(
        "--only",
        nargs="+",
        choices=["tests", "kernels", "cells", "bench", "models", "runs"],
        help="leave the other steps out",
    )
    commands.add_parser("fold", help="merge the results that `run` has left")
    options = parser.parse_args()
    os.chdir(ROOT)
    if options.command == "prepare":
        if waiting := unfolded():
            print(f"{waiting[0]} is not merged yet: make gpu-fold, or move it away", file=sys.stderr)
            return 2
        prepare(options.python, options.list)
    elif options.command == "run":
        return run(options.minutes, options.list, options.only)
    elif unfolded():
        fold()
    else:
        print(f"{FOLDER}/results has nothing to merge: bring it back from the machine with the GPU", file=sys.stderr)
        return 2
    return 0


def unfolded() -> list[Path]:
    """Return the folders of results that wait to be merged, in the order of their runs."""
    return sorted((file for file in (FOLDER / "results").glob("*") if file.is_dir()), key=number_of)


def number_of(folder: Path) -> int:
    """Return the number of a folder of results."""
    return int(folder.name) if folder.name.isdigit() else 0


def next_folder(parent: Path) -> Path:
    """Create the next numbered folder, which nothing else uses."""
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = parent / str(1 + max((number_of(each) for each in parent.iterdir()), default=0))
        with suppress(FileExistsError):  # another process took the number
            folder.mkdir()
            return folder


def prepare(python: str, runs: Path) -> None:
    """Pack wheels, data sets, the commit, and what the list's runs have so far into the folder."""
    for name in ("wheels", "site", "git", "clone", "data", "datasets"):  # runs and results stay
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    wheels = FOLDER / "wheels"
    wheels.mkdir(parents=True)
    pinned = [f"{name}=={version(name)}" for name in sorted(packed())]
    words = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "download", *words, *platforms, "--dest", str(wheels), *pinned], check=True)
    pack_commit(FOLDER / "git")
    pack_kernels(FOLDER / "kernels")
    pack_data(FOLDER / "data")
    pack_runs(runs)
    size = sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) / 1e6
    print(f"{FOLDER}/ has {size:.0f} MB; on the machine with the GPU: make gpu MINUTES=12")


def packed() -> set[str]:
    """Return the packages whose wheels come along."""
    present = needed(["torch", "numpy"]) - needed(["fsspec", "jinja2"])
    return needed(MISSING) - present - {"orthobench"}


def needed(names: Sequence[str]) -> set[str]:
    """Return packages and what they require, among the packages that are installed here, by their canonical names."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: set[str] = set()
    ahead = list(names)
    while ahead:
        name = canonicalize_name(ahead.pop())
        if name in found or not installed(name):
            continue
        found.add(name)
        stated = map(Requirement, requires(name) or [])
        ahead += [each.name for each in stated if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def installed(name: str) -> bool:
    """Return whether a package is installed."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def pack_commit(folder: Path) -> None:
    """Write a repository that knows the commit and its trees, but no contents.

    A run records the commit and whether the code differs from it, and git can tell that from hashes alone. A whole
    repository would be a hundred times as large.
    """
    serve = "git -c uploadpack.allowFilter=true upload-pack"
    source = ["--upload-pack", serve, "--depth", "1", "--filter=blob:none", "--no-checkout", f"file://{ROOT}"]
    clone = folder.with_name("clone")
    subprocess.run(["git", "clone", "--quiet", *source, str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "read-tree", "HEAD"], check=True)
    (clone / ".git").rename(folder)
    clone.rmdir()


def pack_kernels(folder: Path) -> None:
    """Pack the compiled C kernels, of which that machine takes the ones for its processor."""
    folder.mkdir()
    for library in KERNELS.glob("*.so"):
        shutil.copy(library, folder)


def pack_data(folder: Path) -> None:
    """Pack the data sets that are here, each as an archive that `orthobench data import` reads."""
    from orthobench.options.data_folder import data_folder

    folder.mkdir()
    for name in DATA:
        source = data_folder() / name
        if source.exists():
            with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
                archive.add(source, arcname=name)
        else:
            print(f"{name} is not here, so its runs will fail: orthobench data import {name} FOLDER")


def pack_runs(runs: Path) -> None:
    """Pack the results of the list and the checkpoints of its unfinished runs, so that none of them trains twice."""
    from orthobench.planning.listed import runs_in
    from orthobench.plugins import Catalog
    from orthobench.store import Status, open_store
    from orthobench.store.merge import merge, opened_unchanged

    with open_store(str(DATABASE), create=True) as store, opened_unchanged(str(RESULTS)) as source:
        keys = [run.config.spec.key for run in runs_in(runs, Catalog())]
        merge(source, store, keys=keys)
        final = {run.key for run in store.runs(keys=keys) if Status(run.status).is_final}
    for key in set(keys) - final:
        kept, packed = checkpoints_of(RESULTS) / key, checkpoints_of(DATABASE) / key
        if kept.exists() and not packed.exists():
            shutil.copytree(kept, packed)
    print(f"{len(keys) - len(final)} runs of {runs} are left to train")


def checkpoints_of(database: Path) -> Path:
    """Return the folder of the checkpoints of a database's runs."""
    return database.with_name(f"{database.name}.checkpoints")


def run(minutes: float, runs: Path, only: Sequence[str] | None) -> int:
    """Run all steps within the time; return 1 if one of them failed."""
    end = time.monotonic() + 60 * minutes - PACKING
    environment = on_this_machine()
    results = next_folder(FOLDER / "results")
    cores = str(len(os.sched_getaffinity(0)))
    measured = ["--device", "cuda", "--rounds", "3", "--db", str(DATABASE), "--quiet"]
    trained = ["--device", "cuda", "--gpu-share", cores, "--db", str(DATABASE), "--no-profile"]
    trained += ["--keep-weights", "none", "--checkpoint-every", "60"]
    steps = [
        GPUStep("tests", ["pytest", "-v", "-m", "gpu", "-p", "no:cacheprovider", *GPU_TESTS], 0.2),
        GPUStep("kernels", ["pytest", "-p", "no:cacheprovider", "orthobench/testing/kernels"], 0.15),
        GPUStep("cells", ["workshop.benchmarks.cuda_cells", "--out", str(results), "--seconds", "120"], 0.2),
        GPUStep("bench", ["orthobench", "bench", *measured], 0.15),
        GPUStep("models", ["orthobench", "bench", "--models", *measured], 0.2),
        GPUStep("runs", ["orthobench", "reproduce", "--file", str(runs), *trained], None),
    ]
    failed = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a lent machine may end earlier than it said
    try:
        with multi_process_service(environment):
            for step in steps:
                if only is not None and step.name not in only:
                    continue
                left = end - time.monotonic()
                limit = left if step.share is None else min(left, step.share * 60 * minutes)
                code = execute(step, limit, environment, results / f"{step.name}.txt")
                print(f"{step.name}: exit code {code}, {left - (end - time.monotonic()):.0f} s", flush=True)
                if code != 0 and step.name != "runs":  # runs are stopped by the clock, and resume later
                    failed.append(step.name)
    except KeyboardInterrupt:
        failed.append("the whole, which was stopped")
    finally:
        pack(results)
    print(f"results: {results}; merge them with: make gpu-fold")
    if failed:
        print(f"failed: {', '.join(failed)}; see their logs there", file=sys.stderr)
    return 1 if failed else 0


def on_this_machine() -> dict[str, str]:
    """Install the wheels next to the packages of this machine; return the environment of the steps."""
    site = (FOLDER / "site").resolve()
    wheels = sorted(map(str, (FOLDER / "wheels").glob("*.whl")))
    if wheels and not site.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        partial = site.with_name("site.partial")
        shutil.rmtree(partial, ignore_errors=True)
        installed = subprocess.run([*pip, "--target", str(partial), *wheels], check=False)
        if installed.returncode == 0:
            partial.rename(site)
        else:
            here = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise SystemExit(f"the wheels in {FOLDER}/ do not fit: python -m workshop.gpu prepare --python {here}")
    if not Path(".git").exists() and (FOLDER / "git").exists():
        shutil.copytree(FOLDER / "git", ".git")
    for library in (FOLDER / "kernels").glob("*.so"):
        shutil.copy(library, KERNELS)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*([str(site)] if wheels else []), str(ROOT)]),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        "ORTHOBENCH_CACHE": str((FOLDER / "cache").resolve()),
        "GIT_CONFIG_COUNT": "1",  # because a copied tree may belong to another user
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    subprocess.run(["git", "update-index", "-q", "--refresh"], env=environment, check=False)
    for archive in sorted((FOLDER / "data").glob("*.tar.gz")):
        environment["ORTHOBENCH_DATA"] = str((FOLDER / "datasets").resolve())
        name = archive.name.removesuffix(".tar.gz")
        words = [sys.executable, "-m", "orthobench", "data", "import", name, str(archive)]
        if not (FOLDER / "datasets" / name).exists() and subprocess.run(words, env=environment, check=False).returncode:
            print(f"{name} was not imported, so its runs will fail", file=sys.stderr)
    return environment


class multi_process_service:  # noqa: N801 (used as a function)
    """NVIDIA's MPS while the steps run, so that runs share the GPU instead of taking turns; nothing without it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.control = shutil.which("nvidia-cuda-mps-control")

    def __enter__(self) -> None:
        for name in ("PIPE", "LOG"):
            folder = (FOLDER / f"mps-{name.lower()}").resolve()
            folder.mkdir(parents=True, exist_ok=True)
            self.environment[f"CUDA_MPS_{name}_DIRECTORY"] = str(folder)
        if self.control:
            subprocess.run([self.control, "-d"], env=self.environment, check=False)
        else:
            print("nvidia-cuda-mps-control is not here, so the runs take turns on the GPU")

    def __exit__(self, *error: object) -> None:
        if self.control:
            with suppress(subprocess.TimeoutExpired):
                subprocess.run([self.control], input=b"quit\n", env=self.environment, check=False, timeout=20)


def execute(step: GPUStep, limit: float, environment: dict[str, str], log: Path) -> int:
    """Run a step for at most some seconds, with its output in a file; return its exit code."""
    if limit <= 0:
        log.write_text("no time was left\n")
        return 124
    with log.open("wb") as output:
        words = [sys.executable, "-m", *step.words]
        child = subprocess.Popen(words, env=environment, stdout=output, stderr=output, start_new_session=True)
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            return end_of(child)
        except KeyboardInterrupt:
            end_of(child)
            raise


def end_of(child: subprocess.Popen[bytes]) -> int:
    """Interrupt a step, so that a run saves its checkpoint; kill it if it does not end; return its exit code."""
    child.send_signal(signal.SIGINT)
    try:
        return child.wait(PACKING / 2)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.wait()


def pack(results: Path) -> None:
    """Compress the database and its checkpoints."""
    if DATABASE.exists():
        with closing(sqlite3.connect(DATABASE)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (results / f"{DATABASE.name}.gz").write_bytes(gzip.compress(DATABASE.read_bytes(), 6, mtime=0))
    if checkpoints_of(DATABASE).exists():
        with tarfile.open(results / "checkpoints.tar.gz", "w:gz") as archive:
            for run in sorted(checkpoints_of(DATABASE).iterdir()):
                archive.add(run, arcname=run.name)


def fold() -> None:
    """Merge runs, checkpoints and benchmarks into the repository; then move their folders to gpu/folded/.

    What is folded is unpacked into a folder of its own, because gpu/ may have runs that are not in the archive. A fold
    that was interrupted is done again as a whole, which changes nothing that it had merged.
    """
    from orthobench.store import open_store
    from orthobench.store.merge import merge, opened_unchanged

    for results in unfolded():
        if (archive := results / f"{DATABASE.name}.gz").exists():
            with TemporaryDirectory() as folder, ExitStack() as opened:
                unpacked = Path(folder, DATABASE.name)
                unpacked.write_bytes(gzip.decompress(archive.read_bytes()))
                source = opened.enter_context(opened_unchanged(str(unpacked)))
                merged = merge(source, opened.enter_context(open_store(str(RESULTS), create=True)))
            runs, benchmarks = len(merged.added) + len(merged.replaced), merged.rows.get("benchmark", 0)
            print(f"{runs} runs and {benchmarks} benchmarks merged into {RESULTS}")
        if (archive := results / "checkpoints.tar.gz").exists():
            with tarfile.open(archive) as content:
                content.extractall(checkpoints_of(RESULTS), filter="data")
        kept = next_folder(FOLDER / "folded")
        results.rename(kept)  # over the empty folder
        print(f"the files of {results} are in {kept}")


if __name__ == "__main__":
    sys.exit(main())
