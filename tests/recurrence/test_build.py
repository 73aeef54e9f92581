"""The cache of compiled kernels: damage, compilers that fail, folders that cannot be written, wrong kernels."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.scripts import script

from orthobench import files
from orthobench.diagnosis import Level
from orthobench.diagnosis import kernels as diagnosis
from orthobench.files import cache_folder
from orthobench.recurrence.cpu import build, native

pytestmark = pytest.mark.skipif(bool(native.missing()), reason="no C compiler")

RUN = """
import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
import torch
from orthobench.recurrence import cornn, gru, lstm, project, recurrence
ones = lambda *shape: torch.ones(*shape)
for _ in range(2):
    print("recurrence", recurrence.chosen_backend(ones(3, 2, 4), ones(4, 4)))
    print("lstm", lstm.chosen_backend(ones(3, 2, 16), ones(16, 4)))
h, _ = lstm(ones(3, 2, 16), ones(16, 4), (ones(2, 4), ones(2, 4)))
print("value", round(float(h.double().sum()), 5))
x = ones(3, 2, 4).requires_grad_()
recurrence(x, ones(4, 4), (ones(2, 4),))[0].sum().backward()
print("gradient", round(float(x.grad.double().sum()), 5))
"""
ON_THE_CPU = {"recurrence cpu", "lstm cpu"}


@dataclass(frozen=True)
class Outcome:
    """What a process that runs two recurrences says."""

    lines: list[str]
    log: list[str]

    @property
    def backends(self) -> set[str]:
        return {line for line in self.lines if not line.startswith(("value", "gradient"))}

    @property
    def values(self) -> list[str]:
        return [line for line in self.lines if line.startswith(("value", "gradient"))]

    @property
    def builds(self) -> int:
        return sum("compiling" in line for line in self.log)

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.log if line.startswith("WARNING")]


def start(cache: Path, **environment: str) -> subprocess.Popen[str]:
    """A process that runs the recurrences with this cache folder."""
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "ORTHOBENCH_CACHE": str(cache), **environment}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", RUN], env=surroundings, text=True, **pipes)


def outcome(process: subprocess.Popen[str]) -> Outcome:
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return Outcome(output.splitlines(), errors.splitlines())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, quick_compiler: str) -> tuple[Path, Outcome]:
    """A cache folder after one process, and the outcome of that process."""
    folder = tmp_path_factory.mktemp("filled")
    return folder, outcome(start(folder, CC=quick_compiler))


@pytest.fixture(autouse=True)
def _same_compiler(quick_compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", quick_compiler)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder for this process, which loads its kernels again."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(folder))
    build.build.cache_clear()
    yield folder
    build.build.cache_clear()


def only_object(cache: Path) -> Path:
    (shared_object,) = (cache / "recurrence").glob("*.so")
    return shared_object


# ---------------------------------------------------------------------- the instruction set


def test_instruction_set_is_the_chosen_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def noting(command: list[str], folder: Path) -> None:
        commands.append(command)
        raise build.BuildError("noted")

    monkeypatch.setattr(build, "_compile_all", noting)
    keys = set()
    for chosen, flag in (("", "-march=native"), ("x86-64-v3", "-march=x86-64-v3"), ("x86-64", "-march=x86-64")):
        monkeypatch.setenv("ORTHOBENCH_MARCH", chosen)
        keys.add(build._key(["cc"], ()))
        with pytest.raises(build.BuildError, match="noted"):
            build._compile(["cc"], (), tmp_path / "kernels.so")
        assert [part for part in commands[-1] if part.startswith("-m")] == [flag]
    assert len(keys) == 3


def test_unknown_instruction_set_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTHOBENCH_MARCH", "x86-64-v99")
    with pytest.raises(build.BuildError, match=r"failed: .*x86-64-v99"):
        build.build()
    assert not list(cache.rglob("*.so"))


# ---------------------------------------------------------------------- one build


@pytest.mark.slow
def test_concurrent_builds_compile_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds, original = [], build._compile
    monkeypatch.setattr(build, "_compile", lambda *args: (builds.append(args), original(*args)))
    workers = [threading.Thread(target=build.build) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(builds) == 1
    entry = build.build().entry
    assert entry is not None
    assert entry.shared_object.parent == cache / "recurrence"
    assert len(list(cache.rglob("*.so"))) == 1
    assert not list(cache.rglob("*.partial"))
    assert build.build("-O1").entry != entry


@pytest.mark.slow
def test_two_processes_compile_once(tmp_path: Path, filled: tuple[Path, Outcome]) -> None:
    outcomes = [outcome(process) for process in [start(tmp_path) for _ in range(2)]]
    assert sum(each.builds for each in outcomes) == 1
    assert [(each.backends, each.values) for each in outcomes] == [(ON_THE_CPU, filled[1].values)] * 2


@pytest.mark.slow
def test_build_is_compared_and_used_by_later_processes(filled: tuple[Path, Outcome]) -> None:
    folder, first = filled
    assert (first.backends, first.builds, first.warnings) == (ON_THE_CPU, 1, [])
    assert build.CacheEntry(only_object(folder)).verdict() == "compared"
    later = outcome(start(folder))
    assert (later.backends, later.builds, later.warnings) == (ON_THE_CPU, 0, [])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc names the open files")
def test_files_reach_the_disk_before_and_after_the_rename(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    fsync, rename = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        calls.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().suffix))
        fsync(descriptor)

    def recorded_rename(path: Path, target: Path) -> Path:
        calls.append(("rename", path.suffixes[0] + Path(target).suffix))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_rename)
    build.build()
    assert calls == [
        *(("fsync", ".partial"), ("rename", ".partial.so"), ("fsync", "")),
        *(("fsync", ".partial"), ("rename", ".sha256.sha256"), ("fsync", "")),
    ]


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORTHOBENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/orthobench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "orthobench"


# ---------------------------------------------------------------------- damage


def cut(shared_object: Path) -> None:
    os.truncate(shared_object, shared_object.stat().st_size // 2)


def flip(shared_object: Path) -> None:
    content = bytearray(shared_object.read_bytes())
    content[4096::61] = bytes(byte ^ 0xFF for byte in content[4096::61])
    shared_object.write_bytes(content)


def lose_the_record(shared_object: Path) -> None:
    build.CacheEntry(shared_object).record.unlink(missing_ok=True)


def change_the_verdict(shared_object: Path) -> None:
    record = build.CacheEntry(shared_object).record
    record.write_bytes(record.read_bytes() + b" lstm\xe9")


def replace_with_text(shared_object: Path) -> None:
    """An object that does not load, with a valid record."""
    shared_object.write_text("no library")
    build.CacheEntry(shared_object).write("compared")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [cut, flip])
def test_damaged_object_is_rebuilt_once(
    damage: Callable[[Path], None], filled: tuple[Path, Outcome], tmp_path: Path
) -> None:
    cache = shutil.copytree(filled[0], tmp_path / "cache")
    shared_object = only_object(cache)
    expected = shared_object.read_bytes()
    damage(shared_object)
    repaired = outcome(start(cache))
    assert (repaired.backends, repaired.builds, repaired.warnings) == (ON_THE_CPU, 1, [])
    assert repaired.values == filled[1].values
    assert only_object(cache).read_bytes() == expected
    assert build.CacheEntry(shared_object).verdict() == "compared"


@pytest.mark.slow
@pytest.mark.parametrize("damage", [lose_the_record, change_the_verdict, replace_with_text])
def test_object_without_a_valid_record_is_rebuilt_once(
    damage: Callable[[Path], None], cache: Path, filled: tuple[Path, Outcome], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(filled[0], cache)
    expected = only_object(cache).read_bytes()
    damage(only_object(cache))
    with caplog.at_level(logging.INFO, "orthobench.recurrence"):
        for _ in range(2):
            assert build.build().library.vector_length() > 0
            build.build.cache_clear()
    (message,) = [record.message for record in caplog.records]
    assert "compiling" in message
    assert only_object(cache).read_bytes() == expected
    assert build.CacheEntry(only_object(cache)).verdict() == ""


# ---------------------------------------------------------------------- compilers that fail


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_missing_compiler_is_reported(compiler: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(build.BuildError, match=compiler):
        build.build()
    assert not list(cache.rglob("*.so"))


FIND_OUTPUT = 'while [ "$1" != -o ]; do [ "$1" = --version ] && exit; shift; done; out=$2\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FIND_OUTPUT + 'echo garbage > "$out"', "no library that loads"),
        (FIND_OUTPUT + ': > "$out"', "no library that loads"),
        (FIND_OUTPUT + 'head -c 50000 "$OBJECT" > "$out"', "no library that loads"),
        ("exit 0", "no file"),
        ("printf 'Fehler: ung\\374ltig\\n' >&2; exit 1", "Fehler: ung\ufffdltig"),
    ],
    ids=["garbage", "empty", "half", "nothing", "latin-1"],
)
def test_compilers_that_fail_leave_nothing_behind(
    text: str, reason: str, cache: Path, tmp_path: Path, filled: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECT", str(only_object(filled[0])))
    monkeypatch.setenv("CC", script(tmp_path / "fakecc", text))
    with pytest.raises(build.BuildError, match=f"fakecc .*{reason}"):
        build.build()
    assert {path.suffix for path in cache.rglob("*") if path.is_file()} == {".lock"}


def test_compiler_that_prints_latin_1_is_reported(
    cache: Path, tmp_path: Path, quick_compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'echo "Übersetzer"; echo "Übersetzer" >&2; {quick_compiler} "$@"'
    monkeypatch.setenv("CC", script(tmp_path / "fakecc", text))
    assert build.build().library.vector_length() > 0
    assert only_object(cache)


@pytest.mark.parametrize(("command", "reason"), [("cc '", "closing quotation"), (None, "cannot be run")])
def test_compiler_that_cannot_start_is_reported(
    command: str | None, reason: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\0\1\2")
    binary.chmod(0o755)
    monkeypatch.setenv("CC", command or str(binary))
    with pytest.raises(build.BuildError, match=reason):
        build.build("-O1")


@pytest.mark.usefixtures("cache")
def test_library_with_other_functions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "other.c"
    source.write_text("long vector_length(void) { return 4; }")
    monkeypatch.setenv("CC", script(tmp_path / "fakecc", FIND_OUTPUT + f'cc -shared -fPIC {source} -o "$out"'))
    with pytest.raises(build.BuildError, match="other functions"):
        native.load()


# ---------------------------------------------------------------------- folders that cannot be written


@pytest.mark.parametrize("obstacle", [pytest.param("file", marks=pytest.mark.slow), "read-only"])
def test_each_process_builds_for_itself_without_a_cache_folder(
    obstacle: str, filled: tuple[Path, Outcome], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    if obstacle == "file":
        cache.write_text("a file")
    elif os.geteuid():
        cache.mkdir(0o500)
    else:  # permissions do not hold for root
        cache = Path("/proc/self/fdinfo")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    result = outcome(start(cache, TMPDIR=str(temporary)))
    assert (result.backends, result.builds, result.values) == (ON_THE_CPU, 1, filled[1].values)
    (warning,) = result.warnings
    assert "ORTHOBENCH_CACHE" in warning
    assert str(cache) in warning
    assert not [path.name for path in temporary.iterdir() if path.name.startswith("orthobench")]


def test_filled_cache_needs_no_lock(
    cache: Path, filled: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cache folder that only others may write serves as well."""

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    shutil.copytree(filled[0], cache)
    monkeypatch.setattr(build.filelock, "FileLock", refuse)
    with caplog.at_level(logging.INFO, "orthobench.recurrence"):
        loaded = build.build()
        assert loaded.entry == build.CacheEntry(only_object(cache))
        assert loaded.failures(lambda: {"lstm": pytest.fail}) == frozenset()
    assert not caplog.records


# ---------------------------------------------------------------------- folders that others can write to


def open_folder(cache: Path) -> str:
    (cache / "recurrence").chmod(0o777)
    return f"other users can write to {cache}/recurrence "


def open_to_the_group(cache: Path) -> str:
    (cache / "recurrence").chmod(0o770)
    return f"other users can write to {cache}/recurrence "


def open_parent(cache: Path) -> str:
    cache.chmod(0o777)
    return f"other users can write to {cache} "


def open_folder_above(cache: Path) -> str:
    cache.parent.chmod(0o777)
    return f"other users can write to {cache.parent} "


def foreign_folder_above(cache: Path) -> str:
    os.chown(cache.parent, 1000, 1000)
    cache.parent.chmod(0o1777)  # its owner can rename everything in it
    return f"{cache.parent} belongs to another user (uid 1000) "


def open_object(cache: Path) -> str:
    only_object(cache).chmod(0o777)
    return f"other users can write to {only_object(cache)} "


def open_record(cache: Path) -> str:
    record = build.CacheEntry(only_object(cache)).record
    record.chmod(0o666)
    return f"other users can write to {record} "


def foreign_object(cache: Path) -> str:
    os.chown(only_object(cache), 1000, 1000)
    return f"{only_object(cache)} belongs to another user (uid 1000) "


def foreign_folder(cache: Path) -> str:
    for path in (cache, *cache.rglob("*")):
        os.chown(path, 1000, 1000)
    return f"{cache} belongs to another user (uid 1000) "


@pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")
@pytest.mark.parametrize(
    "harm",
    [
        *(open_folder, open_to_the_group, open_parent, open_folder_above, open_object, open_record),
        *(foreign_object, foreign_folder, foreign_folder_above),
    ],
)
def test_code_writable_by_others_is_not_loaded(
    harm: Callable[[Path], str],
    cache: Path,
    filled: tuple[Path, Outcome],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if harm.__name__.startswith("foreign") and os.geteuid():
        pytest.skip("only root gives files away")
    shutil.copytree(filled[0], cache)
    before = only_object(cache).stat()
    monkeypatch.setattr(files, "_is_private", lambda path, status: False)  # the group has other members
    reason = harm(cache).strip()
    monkeypatch.setattr(build, "_compile", lambda *arguments: shutil.copy(only_object(filled[0]), arguments[-1]))
    loaded: list[str] = []
    original = build.Library
    monkeypatch.setattr(build, "Library", lambda path: (loaded.append(path), original(path))[1])
    with caplog.at_level(logging.WARNING, "orthobench.recurrence"):
        fresh = build.build()
    assert fresh.entry is None
    assert not [path for path in loaded if path.startswith(("/proc", str(cache)))]
    assert fresh.library.vector_length() > 0
    assert only_object(cache).stat().st_mtime_ns == before.st_mtime_ns
    (warning,) = [record.message for record in caplog.records]
    assert reason in warning
    assert "set $ORTHOBENCH_CACHE" in warning
    finding = {each.subject: each for each in diagnosis.caches()}["owner"]
    assert finding.level is Level.ACTION
    assert reason in finding.text


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_new_folder_is_private_under_any_umask(
    cache: Path, filled: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(compiler: list[str], flags: tuple[str, ...], target: Path) -> None:
        shutil.copyfile(only_object(filled[0]), target)
        target.chmod(0o777)

    monkeypatch.setattr(build, "_compile", compiled)
    umask = os.umask(0)
    try:
        fresh = build.build()
        assert fresh.entry is not None
        assert fresh.failures(lambda: {"lstm": lambda: True}) == frozenset()
    finally:
        os.umask(umask)
    assert build.distrust(cache) is None
    assert {path.stat().st_mode & 0o777 for path in (cache, cache / "recurrence")} == {0o700}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux loads an opened file")
def test_the_object_that_was_checked_is_the_one_that_is_loaded(
    cache: Path, filled: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program puts another object in its place just before it is loaded."""
    shutil.copytree(filled[0], cache)
    target, original = only_object(cache), build.Library

    def exchange(path: str) -> build.Library:
        target.with_suffix(".other").write_bytes(b"another program's code")
        target.with_suffix(".other").replace(target)
        return original(path)

    monkeypatch.setattr(build, "Library", exchange)
    monkeypatch.setattr(build, "_compile", lambda *arguments: pytest.fail("it was compiled again"))
    assert build.build().library.vector_length() > 0


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_folder_inside_a_shared_one_is_used(cache: Path, filled: tuple[Path, Outcome]) -> None:
    shutil.copytree(filled[0], cache)
    cache.chmod(0o1777)  # as /tmp
    assert build.build().entry is not None
    assert "owner" not in {each.subject for each in diagnosis.caches()}


# ---------------------------------------------------------------------- files that do not compile

BROKEN = """
import logging
logging.basicConfig(format="%(levelname)s %(message)s")
import torch
from orthobench.diagnosis import kernels
from orthobench.recurrence import lstm, slstm
from orthobench.recurrence.cpu import native
print(sorted(name for name, agrees in native.verdicts().items() if not agrees))
x, w, state = torch.ones(3, 2, 16), torch.ones(16, 4), torch.ones(2, 4)
print(lstm.chosen_backend(x, w), slstm.chosen_backend(x, w))
lstm(x, w, 2 * (state,))
slstm(x, w, 4 * (state,))
print(*(f"{each.subject}: {each.text}" for each in kernels.self_tests() if each.level == "action"), sep="\\n")
"""


def outcome_of(program: str, cache: Path, **environment: str) -> tuple[list[str], list[str]]:
    """Return the lines of a program's output and of its log."""
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "ORTHOBENCH_CACHE": str(cache), **environment}
    run = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines(), run.stderr.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("slstm.c", ["slstm"]),
        ("linear.c", ["gated_recurrence", "lipschitz", "project", "readout", "recurrence", "scaled_cayley"]),
    ],
)
def test_file_that_does_not_compile_disables_only_its_operations(
    file: str, names: list[str], tmp_path: Path, quick_compiler: str
) -> None:
    compiler = broken_compiler(quick_compiler, tmp_path, file)
    for _ in range(2):  # built, and from the cache
        lines, log = outcome_of(BROKEN, tmp_path / "cache", CC=compiler)
        assert lines[0] == str(names)
        assert lines[1] == " ".join("reference" if name in names else "cpu" for name in ("lstm", "slstm"))
        assert sorted(line.partition(":")[0] for line in lines[2:]) == [f"C kernels of {name}" for name in names]
        assert all(f"{file} does not compile: {file}:1:" in line and "error" in line for line in lines[2:])
        warnings = [line for line in log if line.startswith("WARNING")]
        assert len(warnings) == ("slstm" in names)
        assert all(f"the C kernels of slstm are missing: {file} does not compile" in line for line in warnings)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["dense.c", "weight_sums.c"])
@pytest.mark.usefixtures("cache")
def test_shared_file_that_does_not_compile_disables_all_kernels(
    file: str, tmp_path: Path, quick_compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", broken_compiler(quick_compiler, tmp_path, file))
    with pytest.raises(build.BuildError, match=rf"{file} does not compile: {file}:1:.*error"):
        native.load()


# ---------------------------------------------------------------------- wrong kernels, and the record of them

OTHER_SOURCES = """
for argument in "$@"; do
    shift
    case $argument in */recurrence/cpu/*.c | */recurrence/ops/*.c) argument={folder}/$(basename "$argument");; esac
    set -- "$@" "$argument"
done
exec {compiler} "$@"
"""


def patched_compiler(compiler: str, folder: Path, old: str, new: str) -> str:
    """A compiler that reads `new` for `old` in all sources."""
    sources = folder / "patched"
    sources.mkdir()
    texts = {file: file.read_text() for file in Path(build.__file__).parents[1].rglob("*.[ch]")}
    assert any(old in text for text in texts.values())
    for file, text in texts.items():
        (sources / file.name).write_text(text.replace(old, new))
    return script(folder / "fakecc", OTHER_SOURCES.format(folder=sources, compiler=compiler))


def broken_compiler(compiler: str, folder: Path, file: str) -> str:
    """A compiler that finds an error in one file."""
    broken = patched_compiler(compiler, folder, "#include", "#include")
    source = folder / "patched" / file
    source.write_text("int error = ;\n" + source.read_text())
    return broken


@pytest.mark.slow
def test_kernels_that_disagree_are_not_used(tmp_path: Path, quick_compiler: str, filled: tuple[Path, Outcome]) -> None:
    """A sigmoid that is one percent off: the LSTM's kernels are wrong, the plain recurrence's are not."""
    compiler = patched_compiler(quick_compiler, tmp_path, "1.0f + exponential(-x)", "1.01f + exponential(-x)")
    cache = tmp_path / "cache"
    for builds in (1, 0):
        result = outcome(start(cache, CC=compiler))
        assert result.backends == {"recurrence cpu", "lstm reference"}
        assert result.values == filled[1].values
        assert result.builds == builds
        (warning,) = result.warnings
        assert "the C kernels of lstm failed their comparison with the reference" in warning
    verdict = build.CacheEntry(only_object(cache)).verdict()
    names = "gated_recurrence gru lem lstm min_gru min_lstm mlstm pointwise short_convolution slstm"
    assert verdict == f"compared {names}"


def test_verdict_is_recorded(cache: Path, filled: tuple[Path, Outcome]) -> None:
    shutil.copytree(filled[0], cache)
    build.CacheEntry(only_object(cache)).write("")
    loaded = build.build()
    assert loaded.failures(lambda: {"gru": lambda: False, "lstm": lambda: True}) == {"gru"}
    assert loaded.failures(lambda: {"gru": pytest.fail, "lstm": pytest.fail}) == {"gru"}
    only_object(cache).unlink()
    assert loaded.failures(lambda: {"gru": lambda: True, "lstm": lambda: False}) == {"lstm"}


def test_interrupted_comparison_says_nothing_about_the_kernels(cache: Path, filled: tuple[Path, Outcome]) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    shutil.copytree(filled[0], cache)
    build.CacheEntry(only_object(cache)).write("")
    loaded = build.build()
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            loaded.failures(lambda: {"gru": interrupted})
    assert loaded.failures(lambda: {"gru": lambda: True}) == frozenset()


def test_kernels_that_end_the_process_are_tried_twice(cache: Path, filled: tuple[Path, Outcome]) -> None:
    shutil.copytree(filled[0], cache)
    build.CacheEntry(only_object(cache)).write("")
    loaded = build.build()
    for _ in range(2):
        child = os.fork()
        if not child:
            loaded.failures(lambda: {"gru": lambda: os._exit(9), "lstm": lambda: True})  # type: ignore[dict-item]
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert loaded.failures(lambda: {"gru": pytest.fail, "lstm": pytest.fail}) == {"gru", "lstm"}
