"""What a person sees on a terminal: rows that are renewed in place, and tables that fit."""

from __future__ import annotations

import functools
import hashlib
import sqlite3
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.screen import ORTHOBENCH, watch

SETTINGS = "sequence_length=10,train_size=500,test_size=20,batch_size=10,epochs=1,hidden_size=4,evaluate_every=10"
SHORT = [word for setting in SETTINGS.split(",") for word in ("-s", setting)]
WIDTHS = [pytest.param(40, marks=pytest.mark.slow), 80, pytest.param(120, marks=pytest.mark.slow)]
NOISY = """
import logging, sys
from orthobench.models.rnn import RNN


class Noisy(RNN):
    title = "Noisy"
    steps = 0

    def forward(self, *arguments, **options):
        Noisy.steps += 1
        if Noisy.steps == 30:
            logging.getLogger("orthobench.noisy").warning("a warning, give `device='cpu'`")
            print("a line")
            print("\\033]8;;http://evil\\033\\\\a link\\033]8;;\\033\\\\\\033[2J", file=sys.stderr)
        return super().forward(*arguments, **options)
"""
DOWNLOAD = """
import sys
from pathlib import Path
from orthobench.data.download import Download, fetch
from orthobench.display.downloads import Downloads
from orthobench.system.output import harmless_output

with harmless_output(), Downloads() as shown:
    fetch(Download("numbers", (sys.argv[1],), sys.argv[2], int(sys.argv[3])), Path(), shown.report)
"""


def results(folder: Path) -> dict[str, float]:
    """Return the final value of each model in the database."""
    connection = sqlite3.connect(folder / "results.db")
    try:
        return dict(connection.execute("SELECT model, final_value FROM run"))
    finally:
        connection.close()


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_run_has_one_row_which_is_renewed(tmp_path, columns):
    shown = watch([*ORTHOBENCH, "run", "adding", "rnn", *SHORT], tmp_path, columns)
    assert shown.code == 0, shown.end
    assert not shown.has("?")
    assert shown.most("adding rnn") == 1
    row, *rest = shown.end.splitlines()
    value = f"mse {results(tmp_path)['rnn']:.4g}"
    assert row.startswith("adding rnn seed 0")
    assert value in row
    assert ("━" * 8 in row, "baseline" in row) == (columns > 40, columns == 120)
    assert value in "".join(rest)


@pytest.mark.parametrize(("columns", "headings"), [(40, "run model final"), (60, "seed status"), (200, "settings")])
def test_list_of_runs_fits_and_a_pipe_gets_everything(tmp_path, columns, headings):
    for rate in ("0.01", "0.02"):
        command = [*ORTHOBENCH, "run", "adding", "rnn", "-s", f"learning_rate={rate}", "--quiet", *SHORT]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    shown = watch([*ORTHOBENCH, "ls", "-n", "1"], tmp_path, columns)
    head, row, *rest = shown.end.splitlines()
    assert set(headings.split()) <= set(head.split())
    assert not any(rest)  # no row is longer than the terminal
    whole = subprocess.run([*ORTHOBENCH, "ls"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    *_, newest = whole.splitlines()
    assert row.startswith(f"{newest[:8]}  ")
    assert f"{results(tmp_path)['rnn']:.4g}" in row
    assert "learning_rate=0.02" in newest
    assert ("learning_rate=0.02" in row) == (columns == 200)


@pytest.mark.parametrize("columns", WIDTHS)
def test_sweep_shows_each_run_in_its_row_and_then_its_result(tmp_path, columns):
    sweep = ["sweep", "adding", "--models", "rnn,gru", "-j", "2", *SHORT]
    shown = watch([*ORTHOBENCH, *sweep], tmp_path, columns)
    assert shown.code == 0, shown.end
    assert not shown.has("?")
    assert shown.most("all runs") == 1
    assert shown.output.count(b"2 of 2 ended") <= 2  # the progress is not drawn again once all runs have ended
    lines = shown.end.splitlines()
    (end,) = (number for number, line in enumerate(lines) if line.startswith("all runs"))
    assert "2 of 2 ended" in lines[end]
    above = "".join(line.ljust(columns) for line in lines[:end])
    for model, value in results(tmp_path).items():
        assert max(shown.most(f"[{number}/2] {model}") for number in (1, 2)) <= 2  # its row, and above it its result
        assert sum(f"2] {model} seed 0" in line for line in lines) == 1
        assert f"{model} seed 0: epoch 1.0" in above
        assert f"mse {value:.4g} (baseline 0.1398)" in " ".join(above.split())
        assert f"{value:.4g}" in next(line for line in lines[end:] if line.startswith(model))
    summary = lines[end + 1].split()
    assert summary[:6] == ["model", "end:", "median", "[95", "%]", "metric"]
    assert ("compared" in summary) == (columns > 40)


@pytest.mark.parametrize("columns", WIDTHS)
def test_plan_names_every_run_whole(prepared, columns):
    folder = prepared(["run", "adding", "rnn", *SHORT])
    plan = ["sweep", "adding", "--models", "rnn,gru", *SHORT, "--dry-run", "--no-profile"]
    shown = watch([*ORTHOBENCH, *plan], folder, columns).end
    with sqlite3.connect(folder / "results.db") as connection:
        ((key,),) = connection.execute("SELECT key FROM run")
    connection.close()
    row = f"\n{key}  rnn              0     finished\n"
    assert (row if columns > 40 else f"\nrun: {key}\nmodel: rnn\nseed: 0\nstate: finished\n") in shown


@pytest.mark.parametrize("columns", WIDTHS)
def test_table_of_runs_has_the_values_that_fit(prepared, columns):
    folder = prepared(["run", "adding", "rnn", *SHORT])
    heading, row, *_ = watch([*ORTHOBENCH, "ls"], folder, columns).end.splitlines()
    values = dict(zip(heading.split(), row.split(), strict=True))
    assert values | {"model": "rnn", "seed": "0", "status": "finished"} == values
    assert values.get("task", "adding") == "adding"
    assert ("task" in values, "weights" in values) == (columns > 40, columns > 80)


BASELINE = """
[[run]]
task = "adding"
model = "rnn"
seeds = [0, 1, 2]
settings = { sequence_length = 10, train_size = 200, test_size = 20, batch_size = 10, epochs = 1, hidden_size = 8 }

[run.metrics.mse]
direction = "min"
allowed_loss = 3.0
"""
FITTING = {
    "ls": ["ls"],
    "compare": ["compare", "model=rnn,sequence_length=10", "model=gru,sequence_length=10"],
    "compare-databases": ["compare-databases", "results.db", "other.db"],
    "compare-tuned": ["compare-tuned", "-t", "adding", "--models", "rnn,gru", "--dry-run", "--no-profile"],
    "plugins": ["plugins"],
    "plugins NAME": ["plugins", "scornn"],
    "plugins --params": ["plugins", "--params"],
    "doctor": ["doctor"],
    "check": ["check", "--db", "checked.db"],
    "data list": ["data", "list"],
    "query": ["db", "query", "SELECT * FROM runs_flat"],
}


@pytest.fixture(scope="module")
def several(prepared) -> Path:
    """A folder with a baseline, and with two databases of the same runs."""
    sweep = ["sweep", "adding", "--models", "rnn,gru", "--seeds", "2", "--quiet", *SHORT]
    other = [*sweep, "--db", "other.db"]
    check = ["check", "--update", "--reason", "first", "--db", "checked.db"]
    return prepared(sweep, other, check, **{"checks/baseline.toml": BASELINE})


@pytest.mark.parametrize(
    ("command", "columns"),
    [
        pytest.param(command, width, marks=() if (command, width) == ("compare", 60) else pytest.mark.slow)
        for command in FITTING
        for width in (40, 60, 80, 120)
    ],
)
def test_tables_fit_the_terminal(several, command, columns):
    """Only commands, which are copied, and names of conditions and files are longer than a line of the terminal."""
    shown = watch([*ORTHOBENCH, *FITTING[command]], several, columns)
    assert shown.code == 0 or command == "doctor", shown.end
    long = [line for line in shown.lines if len(line) > columns]
    assert [line for line in long if not line.startswith(("  orthobench ", "      -> ", "first: "))] == []
    assert "…" not in shown.end or command == "ls"
    letters = "".join("x" if len(line.strip()) == 1 else " " for line in shown.lines)
    assert "xxx" not in letters  # no column is so narrow that a word becomes a letter a line
    if command.startswith("compare-databases") or command == "compare":
        verdict, settings = (shown.end.index(word) for word in ("verdict", "\ndiffering"))
        assert verdict < settings


@pytest.mark.parametrize("columns", WIDTHS)
def test_spinner_leaves_the_screen(small_data, tmp_path, columns):
    source = ["mnist", str(small_data / "mnist"), "--data-dir", str(tmp_path / "new")]
    shown = watch([*ORTHOBENCH, "data", "import", *source], tmp_path, columns)
    assert shown.has("importing and checking mnist")
    assert shown.most("error") == 1
    text = "".join(line.ljust(columns) for line in shown.end.splitlines()).rstrip()
    assert text.startswith("error: ")
    assert text.endswith("the test images are 60 x 28 x 28, not 10000 x 28 x 28")


@pytest.mark.parametrize("columns", WIDTHS)
def test_download_has_one_row(tmp_path, columns):
    served = tmp_path / "served"
    served.mkdir()
    content = bytes(range(256)) * 4000
    (served / "numbers").write_bytes(content)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=served)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/numbers"
        facts = [address, hashlib.md5(content).hexdigest(), str(len(content))]
        shown = watch([sys.executable, "-c", DOWNLOAD, *facts], tmp_path, columns)
        server.shutdown()
        thread.join()
    assert shown.code == 0, shown.end
    assert (tmp_path / "numbers").read_bytes() == content
    assert shown.most("num") == 1
    assert "━" in shown.end
    assert "[" not in shown.end


def test_lines_of_other_code_stand_above_the_row(tmp_path):
    """Warnings, printed lines and codes of a plugin: its links are dropped, and its other codes move no cursor."""
    (tmp_path / "noisy.py").write_text(NOISY)
    shown = watch([*ORTHOBENCH, "run", "adding", "noisy", "--plugin", "noisy.py", *SHORT], tmp_path, 80)
    *lines, row, result = shown.end.splitlines()
    first, *lines = lines
    assert first.endswith("preset quick")
    assert lines == ["a warning, give --device cpu", "a line", "a link"]
    assert row.startswith("adding noisy seed 0 ━")
    assert "finished" in result
    assert shown.most("adding noisy seed 0 ━") == 1
