from __future__ import annotations

import contextlib
import functools
import gc
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from sqlalchemy import Connection, Engine, create_engine, inspect
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from support.command import call_here
from support.postgres import Server, binaries
from support.selection import (  # noqa: F401
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)

from orthobench.recurrence.cpu import call_c
from orthobench.store import open as opening

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")

TINY = {
    "sequence_length": "10",
    "train_size": "40",
    "test_size": "20",
    "batch_size": "10",
    "epochs": "3",
    "evaluate_every": "2",
    "hidden_size": "8",
}


MEMORY = Path("/dev/shm")
"""Linux's folder in memory."""
ROOM = 4 << 30
"""Free bytes of that folder with which the tests' folders go there; they hold two gigabytes at most."""


def pytest_configure() -> None:
    """Keep the tests' folders in memory where it has room, because databases wait for a disk a sixth of the time."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_sessionstart() -> None:
    """End the session if the C kernels are older than their files, because tests would be skipped or run in torch."""
    if (reason := call_c.missing()) and "make kernels" in reason:
        pytest.exit(reason, returncode=1)


def pytest_collection_finish() -> None:
    """Search for garbage less often.

    Each search passes half a million objects of torch and others, and took an eighth of the tests' time. They are not
    frozen instead (`gc.freeze`), because old versions of Hypothesis then fail.
    """
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(scope="session", autouse=True)
def alembic_migration() -> Iterator[Callable[[Connection], None]]:
    """Let alembic write the statements of a new SQLite database once, because they are most of a small run's time.

    The value is the migration by alembic itself, for a test that needs tables on the pages that users have.
    """
    migrate = opening._migrate

    @functools.cache
    def statements() -> list[str]:
        engine = create_engine("sqlite://")
        with engine.begin() as connection:
            migrate(connection)
            database: Any = connection.connection.dbapi_connection
            return [
                statement for statement in database.iterdump() if statement not in {"BEGIN TRANSACTION;", "COMMIT;"}
            ]

    def quick(connection: Connection) -> None:
        if connection.dialect.name == "sqlite" and not inspect(connection).get_table_names():
            for statement in statements():
                connection.exec_driver_sql(statement)
        else:
            migrate(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_migrate", quick)
        yield migrate


@pytest.fixture(scope="session", autouse=True)
def _one_compilation() -> Iterator[None]:
    """Compile a statement once for all SQLite databases, because each test opens its own and compiles all anew."""

    class Equal(SQLiteDialect_pysqlite):
        """A dialect that finds what another one of its kind has compiled."""

        supports_statement_cache = True

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        def __hash__(self) -> int:
            return hash(Equal)

    compiled: dict[object, object] = {}

    def sharing(*arguments: Any, **options: Any) -> Engine:
        engine = create_engine(*arguments, **options)
        if type(engine.dialect) is SQLiteDialect_pysqlite:
            engine.dialect.__class__ = Equal
            engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "create_engine", sharing)
        yield


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Use one thread, since rounding depends on their number. Undo the flush of denormals that training left on."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)


@pytest.fixture
def tiny() -> dict[str, str]:
    """The settings of a run that takes a fraction of a second."""
    return dict(TINY)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The learning rates of all steps of the test's runs, which use plain SGD; for models with one parameter group."""
    noted: list[float] = []

    def noting(name: str, parameters: list[torch.nn.Parameter], learning_rate: float, *_: object) -> torch.optim.SGD:
        optimizer = torch.optim.SGD(parameters, lr=learning_rate)
        optimizer.register_step_pre_hook(lambda *_: noted.append(optimizer.param_groups[0]["lr"]))
        return optimizer

    monkeypatch.setattr("orthobench.training.trainer.build_optimizer", noting)
    return noted


@pytest.fixture
def tiny_options() -> list[str]:
    return [option for name, value in TINY.items() for option in ("-s", f"{name}={value}")]


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """A function from the name of a real data set to its folder; without the data it skips the test."""

    def find(name: str) -> Path:
        from orthobench.data.registry import dataset

        if not os.environ.get("ORTHOBENCH_DATA"):
            pytest.skip("$ORTHOBENCH_DATA names no folder with real data")
        data = dataset(name)
        if not data.present():
            pytest.skip(f"{name} is not in $ORTHOBENCH_DATA")
        return data.folder()

    return find


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder in $ORTHOBENCH_DATA; image data sets have the sizes of `support.data`.

    The settings keep the limits of the real data sets, because their defaults are sizes of these.
    """
    from support.data import COUNTS

    from orthobench.data.cifar10 import CIFAR10Data
    from orthobench.data.emnist import EMNIST
    from orthobench.data.mnist import MNISTData
    from orthobench.tasks._image import ImageSettings

    folder = tmp_path / "data folder"
    monkeypatch.setenv("ORTHOBENCH_DATA", str(folder))
    real = {kind: kind.counts for kind in (MNISTData, EMNIST, CIFAR10Data)}
    monkeypatch.setattr(
        ImageSettings,
        "available",
        lambda self, part: next(real[each] for each in type(self.source).__mro__ if each in real)[part],
    )
    for small in real:
        monkeypatch.setattr(small, "counts", COUNTS)
    return folder


@pytest.fixture(scope="session")
def _small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.data import write_cifar10, write_mnist, write_ptb
    from support.speech import write_timit_sample

    from orthobench.data.registry import dataset

    folder = tmp_path_factory.mktemp("small") / "data"
    write_mnist(folder / "mnist")
    write_mnist(folder / "fashion_mnist")
    write_cifar10(folder / "cifar10")
    write_ptb(folder / "ptb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORTHOBENCH_DATA", str(folder))
        dataset("timit_sample").import_files(write_timit_sample(folder.parent / "nltk"))
    return folder


@pytest.fixture
def small_data(data_folder: Path, _small_data: Path) -> Path:
    """The data folder with small data sets: images, text and speech."""
    return shutil.copytree(_small_data, data_folder, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def _chromium(tmp_path_factory):
    """A headless Chromium that reaches no other host; its start takes as long as several tests."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
        "--window-size=1200,1600",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    yield opened
    opened.quit()


@pytest.fixture
def chromium(_chromium):
    """A Chromium as if it were new: an empty page, a desktop's size, light colours, empty logs."""
    _chromium.get("about:blank")
    _chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    _chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    _chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    _chromium.set_window_size(1200, 1600)
    for kind in ("browser", "performance"):
        _chromium.get_log(kind)
    return _chromium


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A PostgreSQL server that runs until the tests end."""
    if binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (Debian: postgresql)")
    pytest.importorskip("psycopg", reason="the extra orthobench[postgresql] is not installed")
    server = Server()
    yield server
    server.remove()


@pytest.fixture
def postgres(postgres_server: Server) -> str:
    """The URL of an empty database on the server."""
    postgres_server.empty()
    return postgres_server.url


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def orthobench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A function that runs the command line and its training runs in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORTHOBENCH_JOBS", "0")

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = call_here(monkeypatch, arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function from commands, and texts of files that they read, to a folder that has what they leave behind.

    The first call runs the commands; all others with the same arguments return the same folder, for tests to copy.
    """
    folders: dict[tuple[object, ...], Path] = {}

    def prepare(*commands: Sequence[str], **files: str) -> Path:
        key = (*map(tuple, commands), *files.items())
        if key not in folders:
            folder = tmp_path_factory.mktemp("prepared")
            for name, text in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                patch.setenv("ORTHOBENCH_JOBS", "0")
                for command in commands:
                    output = io.StringIO()
                    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                        code = call_here(patch, command)
                    assert code == 0, output.getvalue()
            torch.set_flush_denormal(False)
            folders[key] = folder
        return folders[key]

    return prepare


@pytest.fixture
def after(orthobench, prepared: Callable[..., Path], tmp_path: Path):
    """A function that copies what commands leave behind to the test's folder, and returns `orthobench`.

    The commands are those of `prepared`: they run once for all tests that give the same.
    """

    def copy(*commands: Sequence[str], **files: str):
        shutil.copytree(prepared(*commands, **files), tmp_path, dirs_exist_ok=True)
        return orthobench

    return copy


@pytest.fixture
def start(tmp_path: Path):
    """A function that starts the command line in its own process, in an empty folder; the test's end kills it."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "orthobench", *arguments],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
