"""An ordered list of runs in a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.paper_runs import ENTRY

from orthobench.errors import UsageError
from orthobench.papers import find_paper, find_study
from orthobench.planning.listed import runs_in
from orthobench.planning.paper import resolve_experiments, restrict, study_runs
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve

CATALOG = Catalog()
NAMED = '[[runs]]\ntask = "adding"\nmodels = "gated"\n'
SHIPPED = Path(__file__).parents[2] / "checks/papers.toml"


@pytest.fixture
def write(tmp_path):
    def make(text: str) -> Path:
        file = tmp_path / "runs.toml"
        file.write_text(text)
        return file

    return make


def test_runs_keep_the_order_of_the_file_without_duplicates(write):
    file = write(
        """
        [[runs]]
        paper = "helfrich2018"
        figure = "2"
        models = ["lstm"]
        where = { sequence_length = 400 }
        seeds = 2

        [[runs]]
        paper = "helfrich2018"
        figure = "2"
        models = ["lstm", "scornn"]
        where = { sequence_length = 400 }
        """
    )
    runs = [(run.spec.model, run.spec.seed) for run, _ in runs_in(file, CATALOG)]
    assert runs == [("lstm", 0), ("lstm", 1), ("scornn", 0)]


def test_entry_names_a_list_of_models(write):
    file = write(f'{NAMED}\n[models]\ngated = ["lstm", "gru"]\n')
    assert [run.spec.model for run, _ in runs_in(file, CATALOG)] == ["lstm", "gru"]


def test_listed_runs_equal_the_papers(write):
    file = write('[[runs]]\npaper = "helfrich2020"\ntable = "3"\n')
    paper = resolve_experiments(CATALOG, restrict(find_paper("helfrich2020"), table="3"), [0])
    assert [run.spec.key for run, _ in runs_in(file, CATALOG)] == [run.spec.key for run, _ in paper]


def test_entries_name_a_study_or_a_task(write):
    file = write(
        """
        [[runs]]
        study = "orthogonality"
        preset = "quick"

        [[runs]]
        task = "adding"
        models = ["gru", "torch.nn:GRU"]
        preset = "quick"
        settings = { sequence_length = 20 }
        tags = ["layers"]
        seeds = 2
        """
    )
    runs = runs_in(file, CATALOG)
    studied, _ = study_runs(find_study("orthogonality"), CATALOG, "quick", [0])
    alone = resolve(CATALOG, "adding", "gru", {"sequence_length": "20"}, "quick", 1)
    assert [run.config.spec.key for run in runs[: len(studied)]] == [run.config.spec.key for run in studied]
    added = runs[len(studied) :]
    assert [(run.config.spec.model, run.config.spec.seed) for run in added] == [
        ("gru", 0),
        ("torch.nn:GRU", 0),
        ("gru", 1),
        ("torch.nn:GRU", 1),
    ]
    assert added[2].config.spec.key == alone.spec.key
    assert {run.config.tags for run in added} == {("layers",)}


def test_entries_restrict_a_study(write):
    entry = '[[runs]]\nstudy = "state-tracking"\nseeds = 2\nwhere = { group = "A5" }\nmodels = ["gru", "deltanet"]\n'
    specs = [run.spec for run, _ in runs_in(write(entry), CATALOG)]
    assert [(spec.model, spec.seed) for spec in specs] == [
        (model, seed) for seed in (0, 1) for model in ("deltanet", "deltanet", "gru")
    ]
    assert {spec.settings["group"] for spec in specs} == {"A5"}


def test_study_limits_the_seeds_of_some_parts(write):
    study = find_study("state-tracking")
    one, _ = study_runs(study, CATALOG, "paper", [5])
    runs, figures = study_runs(study, CATALOG, "paper", [5, 6, 7])
    seeds = {"S3": 3, "A5": 3, "parity": 3, "Z60": 1, "cycle navigation": 1, "modular arithmetic": 1}
    assert {figure: len(keys) for figure, keys in figures.items()} == {
        figure: number * len(one) // 6 for figure, number in seeds.items()
    }
    assert [run.config.spec.key for run in runs[: len(one)]] == [run.config.spec.key for run in one]
    assert {run.config.spec.key for run in runs} == {key for keys in figures.values() for key in keys}
    file = write('[[runs]]\nstudy = "state-tracking"\nseeds = 3\nwhere = { group = "Z60" }\n')
    assert {run.config.spec.seed for run in runs_in(file, CATALOG)} == {0}


def test_entries_for_a_gpu_are_left_out_on_a_cpu(write):
    entry = '[[runs]]\ntask = "adding"\nmodels = ["{}"]\n{}'
    file = write(entry.format("rnn", "") + entry.format("gru", 'device = "cuda"\n'))
    models = {
        device: [run.spec.model for run, _ in runs_in(file, CATALOG, device=device)] for device in ("cpu", "cuda")
    }
    assert models == {"cpu": ["rnn"], "cuda": ["rnn", "gru"]}


def test_shipped_list_is_valid_and_begins_with_theory():
    specs = [run.spec for run, _ in runs_in(SHIPPED, CATALOG)]
    assert len({spec.key for spec in specs}) == len(specs)
    assert [spec.model for spec in specs[:8]] == ["enrnn"] * 3 + ["antisymmetric"] * 5


def test_shipped_list_trains_no_run_of_weeks_on_a_cpu():
    specs = [run.spec for run, _ in runs_in(SHIPPED, CATALOG, device="cpu")]
    assert {spec.model for spec in specs} >= {"scornn", "full_urnn", "enrnn", "lstm"}
    wide = [
        spec for spec in specs if spec.model in ("urnn", "full_urnn", "lstm") and spec.settings["hidden_size"] > 350
    ]
    assert wide == []


@pytest.mark.slow
def test_shipped_comparisons_are_valid():
    pytest.importorskip("torchrecurrent")
    runs = runs_in(SHIPPED.with_name("comparisons.toml"), CATALOG)
    assert len({run.config.spec.key for run in runs}) == len(runs)
    assert {run.config.spec.task for run in runs} >= {"adding", "copying", "formal_language"}


def test_entry_has_its_settings_and_tags(write):
    text = f'{ENTRY}settings = {{ learning_rate = 1e-2, max_iterations = 50 }}\ntags = ["tried", "rates"]\n'
    ((run, _),) = runs_in(write(text), CATALOG)
    assert (run.spec.settings["learning_rate"], run.spec.settings["max_iterations"]) == (1e-2, 50)
    assert run.tags == ("tried", "rates")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "should be a list of [[runs]]"),
        ("runs = 3", "should be a list of [[runs]]"),
        ("runs = [3]", "should be a list of [[runs]]"),
        ("x = 1\n[[runs]]\npaper = 'lem'", "should be a list of [[runs]]"),
        ("[[runs]]\nfigure = '1'", "entry 1: name either a paper, a study, or a task with models"),
        (
            "[[runs]]\npaper = 'helfrich2018'\nstudy = 'orthogonality'",
            "entry 1: name either a paper, a study, or a task",
        ),
        ("[[runs]]\nstudy = 'orthogonality'\nfigure = '1'", "entry 1: figure does not apply to a study: leave it out"),
        ("[[runs]]\ntask = 'adding'", "entry 1: a task needs models: add a list such as models = ['scornn', 'lstm']"),
        (
            "[[runs]]\nstudy = 'state-tracking'\nwhere = { group = 'A6' }",
            "entry 1: no run has group=A6; runs have group A5, S3, Z60, none",
        ),
        (
            "[[runs]]\npaper = 'helfrich2018'\nsettings = { n = 8, hidden_size = 9 }",
            "entry 1: hidden_size is given twice (8 and 9)",
        ),
        ("[[runs]]\nstudy = 'orthogonalty'", "entry 1: unknown study 'orthogonalty': did you mean orthogonality?"),
        ("[[runs]]\npaper = 'lem'\npreset = 'quick'", "entry 1: preset does not apply to a paper: leave it out"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigur = '1'", "did you mean figure?"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigure = 1", "entry 1: figure should be the number of a figure"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigure = '99'", "entry 1: helfrich2018 has no figure 99"),
        ("[[runs]]\npaper = 'helfrich2018'\nseeds = 0", "entry 1: seeds should be a number of seeds from 1"),
        ("[[runs]]\npaper = 'helfrich2018'\nmodels = []", "entry 1: models should be a list of models"),
        (f"{NAMED}[models]\ngatd = ['lstm']", "unknown list of models in entry 1"),
        (f"{NAMED}[models]\ngated = 'lstm'", "entry 1: models should be a list of models"),
        (f"models = 3\n{NAMED}", "[models] should have lists of models by name"),
        ("[[runs]]\npaper = 'helfrich2018'\nwhere = { n = [1] }", "entry 1: where should be settings"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigure = '1'\ntable = '1'", "a table or a figure, one at a time"),
        ("[[runs]]\npaper = 'helfrich2018'\nsettings = { n = [1] }", "entry 1: settings should be settings"),
        ("[[runs]]\npaper = 'helfrich2018'\nfigure = '2'\nsettings = { rate = 1 }", "unknown setting 'rate'"),
        ("[[runs]]\npaper = 'helfrich2018'\ntags = ['a,b']", "entry 1: tags should be a list of names"),
        ("[[runs]\n", "is not TOML"),
    ],
)
def test_invalid_entry_is_one_line_that_names_it(write, text, message):
    with pytest.raises(UsageError) as error:
        runs_in(write(text), CATALOG)
    assert message in str(error.value)
    assert "runs.toml" in str(error.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.toml cannot be read: No such file"):
        runs_in(tmp_path / "none.toml", CATALOG)
