"""Reports and comparisons load neither torch, nor Plotly, nor matplotlib: only training and figures need them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.pages import add_run

from orthobench.store import open_store

UNWANTED = {"torch", "plotly", "alembic", "matplotlib", "optuna"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    with open_store(str(folder / "results.db"), create=True) as store:
        for seed in range(2):
            add_run(store, "lstm", seed)
            add_run(store, "rnn", seed)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--html"],
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (["report", "--format", "csv"], ["report", "--format", "reproduction"], ["ls"])
        ),
    ],
    ids=" ".join,
)
def test_reading_results_loads_neither_torch_nor_plotly(folder, words):
    code = (
        f"import sys; sys.argv = {['orthobench', *words]}\nfrom orthobench.__main__ import main\n"
        f"try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        f"print(*sorted(set(sys.modules) & {UNWANTED}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""
