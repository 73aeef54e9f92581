"""The report on a GPU: its file, where it is cut off and continued, and every row of it on a stand-in for a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from orthobench import api
from orthobench.diagnosis import gpu_report, gpu_rows
from orthobench.diagnosis.gpu_report import write_report
from orthobench.diagnosis.gpu_rows import rows_on
from orthobench.diagnosis.gpu_timing import Device, Row, Sizes
from orthobench.errors import StorageError, UsageError
from orthobench.recurrence.cpu import backend as cpu
from orthobench.recurrence.cpu import native
from orthobench.recurrence.cuda import verdicts

FACTS = {"device": "a fake GPU", "driver": "1.2", "torch": "9", "code": "abc", "memory": 1}


def nothing(record: Mapping[str, Any]) -> None:
    """Ignore a row."""


def write(file: Path, rows: list[Row], facts: Mapping[str, Any] = FACTS, **others: Any) -> int:
    return write_report(file, facts, rows, others.pop("deadline", 1e9), others.pop("on_row", nothing), **others)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in file.read_text().splitlines()]


def results(file: Path) -> dict[str, Any]:
    return {record["row"]: record for record in lines(file)[1:] if "started" not in record}


def counted(names: str, calls: list[str]) -> list[Row]:
    """Rows a, b, ... that note their calls."""

    def row(name: str) -> Row:
        def measure() -> Mapping[str, Any]:
            calls.append(name)
            return {"ms": float(len(calls))}

        return Row(name, measure)

    return [row(name) for name in names]


def test_rows_are_written_in_their_order_and_each_before_the_next(tmp_path: Path) -> None:
    file = tmp_path / "report"
    before: list[int] = []
    rows = [Row(name, lambda: before.append(len(lines(file))) or {"ms": 1.0}) for name in "abc"]
    seen: list[str] = []
    assert write(file, rows, on_row=lambda record: seen.append(record["row"])) == 0
    assert lines(file)[0] == {"report": "orthobench GPU report", "machine": FACTS}
    assert list(results(file)) == seen == ["a", "b", "c"]
    assert before == [2, 4, 6], "the machine, then two lines for each row"


def test_a_row_that_fails_keeps_its_message_and_the_others_run(tmp_path: Path) -> None:
    def broken() -> Mapping[str, Any]:
        raise RuntimeError("no such kernel\nat 0x7f")

    file = tmp_path / "report"
    assert write(file, [Row("a", broken), *counted("b", [])]) == 0
    assert results(file) == {"a": {"row": "a", "error": "RuntimeError: no such kernel"}, "b": {"row": "b", "ms": 1.0}}


def test_a_report_that_ran_out_of_time_is_continued(tmp_path: Path) -> None:
    file, calls = tmp_path / "report", list[str]()
    clock = iter(range(100))
    assert write(file, counted("abcd", calls), deadline=2, clock=lambda: next(clock)) == 2
    assert write(file, counted("abcd", calls)) == 0
    assert calls == ["a", "b", "c", "d"]
    assert list(results(file)) == ["a", "b", "c", "d"]
    before = file.read_bytes()
    assert write(file, counted("abcd", calls)) == 0
    assert file.read_bytes() == before


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_report_that_was_cut_at_any_byte_stands_and_is_continued(tmp_path: Path, cut: int) -> None:
    file, calls = tmp_path / "report", list[str]()
    write(file, counted("ab", calls))
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    stored = [json.loads(text) for text in whole[:-cut].splitlines(keepends=True) if text.endswith(b"\n")]
    assert write(file, counted("ab", calls)) == 0
    assert [record["row"] for record in lines(file)[1:] if "started" not in record] == ["a", "b"]
    if {"row": "b", "started": True} in stored:  # its process ended there
        assert results(file)["b"]["error"] == "the process ended in this row"
        assert calls == ["a", "b"]


def test_a_row_that_ends_its_process_is_not_tried_again(tmp_path: Path) -> None:
    def dies() -> Mapping[str, Any]:
        raise SystemExit

    file, calls = tmp_path / "report", list[str]()
    with pytest.raises(SystemExit):
        write(file, [Row("a", dies), *counted("b", calls)])
    assert write(file, [Row("a", dies), *counted("b", calls)]) == 0
    assert results(file) == {"a": {"row": "a", "error": "the process ended in this row"}, "b": {"row": "b", "ms": 1.0}}


def test_a_broken_device_ends_the_report_and_the_next_process_goes_on(tmp_path: Path) -> None:
    def illegal() -> Mapping[str, Any]:
        raise RuntimeError("CUDA error: an illegal memory access")

    file, calls = tmp_path / "report", list[str]()
    assert write(file, [Row("a", illegal), *counted("bc", calls)], is_broken=lambda: True) == 2
    assert calls == []
    assert write(file, [Row("a", illegal), *counted("bc", calls)]) == 0
    assert calls == ["b", "c"]


def test_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    file = tmp_path / "report"
    write(file, [Row("a", lambda: {"errors": {"x": float("nan")}})])
    assert results(file)["a"]["errors"] == {"x": None}


@pytest.mark.parametrize("content", ["a diary\n", "{}\n", "[1]\n", '{"report": "of another kind", "machine": {}}\n'])
def test_another_file_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    file = tmp_path / "report"
    file.write_text(content)
    with pytest.raises(UsageError, match="is no report of a GPU: name another file"):
        write(file, counted("a", []))
    assert file.read_text() == content


def test_the_report_of_another_machine_is_left_as_it_is(tmp_path: Path) -> None:
    file, calls = tmp_path / "report", list[str]()
    write(file, counted("a", calls))
    with pytest.raises(UsageError, match=r"other circumstances \(driver 1.2\): name another file"):
        write(file, counted("ab", calls), FACTS | {"driver": "1.3"})
    assert write(file, counted("ab", calls), FACTS | {"memory": 2}) == 0
    assert calls == ["a", "b"]


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        write(tmp_path / "nowhere" / "report", counted("a", []))


def test_without_a_gpu_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="there is no CUDA device here"):
        api.gpu_report(tmp_path / "report")
    assert not (tmp_path / "report").exists()


KERNELS = ("nvrtc", "cluster", "triton")


def stand_in() -> Device:
    """The CPU in place of a GPU, its C kernels in place of Triton's; each function runs and is not timed."""

    def timed(run: Callable[[], Any]) -> Mapping[str, Any]:
        run()
        return {"ms": 1.0}

    return Device(torch.device("cpu"), timed, lambda run: run, cpu, lambda call: dict.fromkeys(KERNELS, cpu.run))


SMALL = Sizes(steps=3, batch=2, row=(6, 4), step=(8,), cluster=(8,), gated=(4,), model_steps=3)


@pytest.mark.skipif(bool(native.missing()), reason="no C compiler")
def test_every_row_runs_and_the_first_ones_tell_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTHOBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verdicts, "machine", lambda device: FACTS)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(gpu_report.environment, "describe", lambda device: {"accelerator": "a fake GPU"})
    small = ("recurrence norm, n <= 64", "gru", "lstm", "recurrence modrelu bias, n <= 64")

    def rows(device: torch.device) -> list[Row]:
        every = list(rows_on(stand_in(), SMALL))
        names = [row.name for row in every]
        assert len(set(names)) == len(names)
        kinds = [name.split()[0] for name in names]
        order = list(dict.fromkeys(kinds))
        assert order == [
            *("self-test", "training", "recurrence", "LSTM", "GRU", "cuDNN", "constraint", "weight", "1000", "row"),
            *("step", "cluster"),
        ]
        assert names[0].startswith("self-test recurrence modrelu bias")
        # The self-tests of large sizes take minutes on a CPU, and the models at their sizes as well.
        return [
            row
            for row in every
            if not row.name.startswith(("self-test", "training"))
            or row.name.removeprefix("self-test ").startswith(small)
            or row.name.endswith(" lstm, n=128, B=50")
            or row.name.startswith("training together: ten steps of 2 ")
        ]

    monkeypatch.setattr(gpu_rows, "rows", rows)
    file = tmp_path / "report"
    assert api.gpu_report(file) == 0
    assert [record for record in results(file).values() if "error" in record] == []
    assert {r["verdict"] for r in results(file).values() if "verdict" in r} == {"passed"}
    assert results(file)["weight gradient n=6, TF32 off"]["relative_error"] < 1e-6
    assert len(results(file)) > 60
    assert {f"GRU n=4, reset before, graph, kernel {name}" for name in KERNELS} <= set(results(file))
    assert [name for name in results(file) if name.startswith("cluster")] == [
        f"cluster kernel n=8, 4 blocks, {rows} rows" for rows in (1, 2, 4, 8)
    ]


def test_a_row_as_text() -> None:
    record = {"row": "a b", "ms": 1.23456, "errors": {"x": 1e-9}, "n": 3}
    assert gpu_report.line(record) == "a b: ms 1.235, errors (x 1e-09), n 3"
