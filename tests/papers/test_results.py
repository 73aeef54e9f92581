"""The papers' results as data: every row can be run, stands in its table, and has the size it is printed with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from orthobench.analysis.claims import read_claims
from orthobench.analysis.claims.claim import Comparing, ModelClaim
from orthobench.analysis.claims.over_setting import OverSetting
from orthobench.analysis.claims.trajectories import PanelClaim
from orthobench.analysis.dynamics import COMPUTATIONS
from orthobench.analysis.paper_tables import build_table
from orthobench.errors import UsageError
from orthobench.model import ModelSettings
from orthobench.options.assignments import parse_assignments
from orthobench.papers import Experiment, Paper, Printed, find_paper, find_study, papers, studies
from orthobench.papers.paper_study import StudyRun
from orthobench.papers.sizes import PrintedSize, sizes
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.task import TrainingSettings

CATALOG = Catalog()
EXPERIMENTS = [experiment for paper in papers() for experiment in paper.experiments()]
SIZES = list(sizes())
WITHOUT_SIZE = {"kerg2019-Penn Treebank table-EURNN, n = 2048"}  # the paper names no number of layers
OWN_VALIDATION = {"ptb", "timit"}  # tasks whose data set has a validation part


def name(experiment: Experiment) -> str:
    return f"{experiment.paper}-{experiment.artifact}-{experiment.label}"


def test_text_of_a_wait_says_that_the_curve_leaves_the_baseline():
    """The check fails for a run that stays there, so a text without the end would call such a run no wait."""
    waits = [
        claim
        for paper in papers()
        for artifact in paper.artifacts()
        for claim in read_claims(artifact)
        if claim.check == "waits"
    ]
    assert waits
    assert [claim.text for claim in waits if "and then" not in claim.text] == []


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=name)
def test_every_experiment_runs_with_its_own_settings(experiment):
    spec = resolve(CATALOG, experiment.task, experiment.model, {}, experiment=experiment).spec
    settings = spec.settings
    classes = [CATALOG.load("task", spec.task).Settings, CATALOG.load("model", spec.model).Settings, TrainingSettings]
    for setting, value in experiment.settings.items():
        owners = [cls for cls in classes if setting in cls.model_fields]
        if setting in settings or not owners:
            assert settings[setting] == value, setting
        else:  # left out of the record, as it is at the value that changes nothing
            assert owners[0].neutral()[setting] == getattr(owners[0].read({setting: value}), setting), setting


@pytest.mark.parametrize("experiment", [e for e in EXPERIMENTS if e.parameters], ids=name)
def test_every_published_size_is_compared_with_the_models(experiment):
    printed = experiment.parameters.removeprefix("≈")
    own = resolve(CATALOG, experiment.task, experiment.model, {}, experiment=experiment).spec.model_settings
    Settings = CATALOG.load("model", experiment.model).Settings
    same = [
        size
        for size in SIZES
        if (size.model, size.printed) == (experiment.model, printed)
        and size_settings(size, Settings).items() <= own.items()
    ]
    assert bool(same) == (name(experiment) not in WITHOUT_SIZE)


def size_settings(size: PrintedSize, Settings: type[ModelSettings]) -> dict[str, Any]:
    """The settings that a row of the sizes names, with their types."""
    assignments = parse_assignments(size.settings.split())
    return Settings.read(assignments).model_dump(include=set(assignments))


@pytest.mark.parametrize("experiment", [e for e in EXPERIMENTS if e.selection == "best_valid"], ids=name)
def test_experiment_selected_by_validation_has_a_validation_split(experiment):
    settings = resolve(CATALOG, experiment.task, experiment.model, {}, experiment=experiment).spec.task_settings
    assert experiment.task in OWN_VALIDATION or settings["validation_size"] > 0


@pytest.mark.parametrize("task", sorted(OWN_VALIDATION))
@pytest.mark.usefixtures("small_data")
def test_task_with_a_validation_split_uses_it(task):
    settings = {"dataset": "timit_sample"} if task == "timit" else {}
    config = resolve(CATALOG, task, "rnn", settings)
    assert len(config.task_class(config.task_settings, 0, torch.device("cpu")).validation) > 0


def test_experiment_names_are_unique():
    identities = [experiment.identity for experiment in EXPERIMENTS]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.key)
def test_every_published_number_has_its_own_cell(paper):
    for artifact in paper.artifacts():
        if artifact.shows != "table":
            continue
        cells = []
        for experiment in paper.experiments_in(artifact.name):
            for printed in experiment.printed_in(artifact.name):
                columns = [column.label for column in artifact.columns if column.holds(experiment, printed)]
                assert len(columns) == 1, (artifact.name, experiment.label, printed)
                cells.append((experiment.label, columns[0]))
        assert len(set(cells)) == len(cells), artifact.name


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.key)
def test_claims_refer_to_existing_experiments(paper):
    for artifact in paper.artifacts():
        if artifact.shows == "study":
            continue
        models = {experiment.model for experiment in paper.experiments_in(artifact.name)}
        for claim in read_claims(artifact):
            assert isinstance(claim, ModelClaim)
            subjects = [e for e in paper.experiments_in(artifact.name) if e.model == claim.model and e.has(claim.where)]
            assert subjects, claim.text
            if isinstance(claim, Comparing):
                assert set(claim.others) <= models, claim.text
            if isinstance(claim, OverSetting):
                assert all(claim.over in subject.settings for subject in subjects), claim.text


def settings_of(run: StudyRun) -> dict[str, Any]:
    """Return the settings as a claim reads them from the run: a share of the units is a number of units by then."""
    spec = resolve(Catalog(), run.task, run.model, run.settings).spec
    return spec.task_settings | spec.model_settings


def test_study_claims_refer_to_their_runs_or_panels():
    for artifact in (artifact for paper in papers() for artifact in paper.artifacts() if artifact.shows == "study"):
        study = find_study(artifact.study)
        runs = study.runs("paper")
        runs = [run for run in runs if run.figure == artifact.name] or runs
        panels = (
            {panel["panel"] for panel in COMPUTATIONS[study.computation]()["panels"]} if study.computation else set()
        )
        for claim in read_claims(artifact):
            if isinstance(claim, PanelClaim):
                assert claim.panel in panels, claim.text
            else:
                fits = [
                    run for run in runs if run.model == claim.model and claim.where.items() <= settings_of(run).items()
                ]
                assert fits, claim.text


def test_claims_of_this_project_are_about_runs_of_their_study():
    models = Catalog().names("model")
    for study in studies():
        runs = study.runs("paper", models)
        for claim in read_claims(study):
            about = [run for run in runs if run.model == claim.model and claim.where.items() <= run.settings.items()]
            assert len(about) == 1, claim.text


def test_only_the_listed_figures_have_no_claim():
    """Of those without, the printed curves are not at hand, and the text says nothing of them.

    SLiCE's paper prints nothing of the studies under this project's reduced protocol. What figure 4 shows is of another
    size than our runs of it.
    """
    figures = [
        (paper.key, artifact) for paper in papers() for artifact in paper.artifacts() if artifact.shows != "table"
    ]
    assert [(key, artifact.name) for key, artifact in figures if not artifact.claims] == [
        ("helfrich2018", "figure 4, n = 116 and 170"),
        ("lezcano2019", "copying figure"),
        ("helfrich2017", "figure 3"),
        ("helfrich2017", "figure 4"),
        ("walker2025", "state tracking"),
        ("walker2025", "longer sequences"),
    ]


def test_figures_of_a_paper_are_in_order():
    """Those that are studies among them, and statements of the text."""
    order = {key: [artifact.name for artifact in find_paper(key).artifacts()] for key in ("helfrich2020", "chang2019")}
    assert order["helfrich2020"][-4:] == ["figure 4", "figure 5", "figure 6", "figure 7"]
    assert order["chang2019"][:3] == ["equation 7", "figure 1", "table 1"]
    studies = {artifact.name: artifact.study for artifact in find_paper("helfrich2018").artifacts() if artifact.study}
    assert studies == {
        "table 3": "time",
        "figure 4": "orthogonality",
        "negative ones": "negative-ones",
        "activations": "activations",
        "figure 5": "gradient-norms",
    }


def test_published_numbers_match_a_sample_of_the_papers():
    """A sample of table 1 of the scoRNN paper, table 2 of AntisymmetricRNN's, table 3 of ENRNN's."""

    def value(key: str, artifact: str, label: str, column: str) -> float:
        paper = find_paper(key)
        (table,) = (entry for entry in paper.artifacts() if entry.name == artifact)
        (table_column,) = (entry for entry in table.columns if entry.label == column)
        (number,) = (
            printed.value
            for experiment in paper.experiments_in(artifact)
            if experiment.label == label
            for printed in experiment.printed_in(artifact)
            if table_column.holds(experiment, printed)
        )
        assert number is not None
        return number

    assert value("helfrich2018", "table 1", "scoRNN, n = 512", "permuted MNIST") == 0.966
    assert value("helfrich2018", "table 1", "Restricted uRNN, n = 2170", "MNIST") == 0.984
    assert value("helfrich2018", "table 3", "Full uRNN, n = 360", "minutes per epoch") == 25.8
    assert value("chang2019", "table 2", "AntisymmetricRNN w/ gating, n = 256", "noise-padded rows") == 0.547
    assert value("helfrich2020", "table 3", "ENRNN, n = 310/720", "Test BPC") == 1.429
    assert value("kerg2019", "Penn Treebank table", "EURNN, n = 2048", "accuracy, T = 300") == 0.6555


def test_quoted_numbers_are_marked():
    quotations = [e for e in EXPERIMENTS if any(note.startswith("Quoted") for note in e.notes)]
    assert quotations
    for experiment in quotations:
        assert experiment.printed
        assert all(printed.quoted for printed in experiment.printed), experiment


@pytest.mark.parametrize("fields", [{}, {"value": 0.9, "lost": True}, {"value": 1.0, "outcome": "falls"}])
def test_published_result_with_several_kinds_of_value_is_refused(fields):
    with pytest.raises(ValidationError, match="a value, a curve or an outcome, or is lost"):
        Printed(metric="accuracy", **fields)


def test_unknown_paper_is_refused():
    with pytest.raises(UsageError, match="did you mean helfrich201"):
        find_paper("helfrich2019")


def test_tables_without_a_description_get_columns():
    """From what differs: here the metric, the split and one task setting."""
    printed = [Printed(metric="bpc", value=1.5), Printed(metric="bpc", split="valid", value=1.6)]
    both = [
        Experiment(artifact="table 9", task="t", model="m", task_settings={"length": n, "size": 4}, printed=printed)
        for n in (1, 2)
    ]
    paper = Paper(key="k", title="", subject="", authors="", venue="", year=2000, priority=9, experiment=both)
    (table,) = paper.artifacts()
    assert [column.label for column in table.columns] == [
        "bpc, length 1",
        "bpc, valid, length 1",
        "bpc, length 2",
        "bpc, valid, length 2",
    ]


# The tables of the scoRNN paper and its first version, row by row in the printed order and with the printed digits
TABLE_1 = """
scoRNN, n = 170|0.973|0.943
scoRNN, n = 360|0.983|0.962
scoRNN, n = 512|0.985|0.966
LSTM, n = 128|0.987|0.920
LSTM, n = 256|0.989|0.929
LSTM, n = 512|0.985|0.920
Restricted uRNN, n = 512|0.976|0.945
Restricted uRNN, n = 2170|0.984|0.953
Full uRNN, n = 116|0.947|0.925
Full uRNN, n = 512|0.974|0.947
EURNN, n = 512|-|0.937
oRNN, n = 256|0.972|-
"""
TABLE_3 = """
RNN, n = 116|2.3
scoRNN, n = 170|5.3
Restricted uRNN, n = 512|8.2
Full uRNN, n = 116|10.8
LSTM, n = 128|5.0
scoRNN, n = 360|7.4
Restricted uRNN, n = 2170|50.1
RNN, n = 360|2.3
scoRNN, n = 512|11.2
Full uRNN, n = 360|25.8
RNN, n = 512|2.4
LSTM, n = 256|5.2
Full uRNN, n = 512|27.9
LSTM, n = 512|5.6
"""
FIRST_VERSION = """
scoRNN, n = 170|0.973|0.943
scoRNN, n = 360|0.983|0.962
LSTM, n = 128|0.987|0.920
LSTM, n = 256|0.989|0.929
Restricted-capacity uRNN, n = 512|0.976|0.945
Full-capacity uRNN, n = 116|0.947|0.925
Full-capacity uRNN, n = 512|0.974|0.947
"""
TIMIT = """
scoRNN, n = 224|9.26|8.50
scoRNN, n = 322|8.48|7.82
scoRNN, n = 425|7.97|7.36
LSTM, n = 84|15.42|14.30
LSTM, n = 120|13.93|12.95
LSTM, n = 158|13.66|12.62
Restricted uRNN, n = 158|15.57|18.51
Restricted uRNN, n = 256|15.90|15.31
Restricted uRNN, n = 378|16.00|15.15
Full uRNN, n = 128|15.07|14.58
Full uRNN, n = 192|15.10|14.50
Full uRNN, n = 256|14.96|14.69
"""
TIMIT_LATER = """
ENRNN, n = 374/94|0.13|0.13|4.84|0.83|2.75
scoRNN, n = 425|1.56|1.52|4.55|0.82|2.72
LSTM, n = 158|8.53|8.27|4.00|0.79|2.51
LSTM, n = 468|5.60|5.42|4.82|0.81|2.75
"""
PTB = """
ENRNN, n = 310/720|1.475|1.429
LSTM, n = 350|1.506|1.461
GRU, n = 415|-|1.601
EURNN, n = 2048|-|1.715
GORU, n = 512|-|1.623
oRNN, n = 512|1.73|1.68
nnRNN, n = 1024|-|1.47
LSTM, n = 1030|1.447|1.408
"""


@pytest.mark.parametrize(
    ("key", "artifact", "text", "columns"),
    [
        ("helfrich2018", "table 1", TABLE_1, (1, 2)),
        ("helfrich2018", "table 2", TIMIT, (1, 2)),
        ("helfrich2018", "table 3", TABLE_3, (1,)),
        ("helfrich2020", "table 2", TIMIT_LATER, (1, 2, 3, 4, 5)),
        ("helfrich2017", "table 1", FIRST_VERSION, (1,)),
        ("helfrich2017", "table 2", FIRST_VERSION, (2,)),
        ("helfrich2020", "table 3", PTB, (1, 2)),
    ],
)
def test_tables_have_the_published_order_and_digits(key, artifact, text, columns):
    paper = find_paper(key)
    (described,) = (entry for entry in paper.artifacts() if entry.name == artifact)
    table = build_table(paper, described, {})
    lines = [line.split("|") for line in text.strip().splitlines()]
    expected = [(cells[0], [cells[column] for column in columns if cells[column] != "-"]) for cells in lines]
    labels = [column.label for column in table.columns]
    shown = [(row.label, [row.cells[name].printed.text for name in labels if name in row.cells]) for row in table.rows]
    assert shown == expected


def test_every_table_and_figure_is_named():
    names = {
        key: {artifact.name for artifact in find_paper(key).artifacts()} for key in ("helfrich2018", "helfrich2017")
    }
    printed = {*(f"figure {n}" for n in range(1, 6)), *(f"table {n}" for n in range(1, 4))}
    assert names["helfrich2018"] == {
        *printed,
        "rate of the LSTM",
        "figure 4, n = 116 and 170",
        "negative ones",
        "activations",
    }
    assert names["helfrich2017"] == {*(f"figure {n}" for n in range(1, 5)), *(f"table {n}" for n in range(1, 3))}
    assert {f"figure {n}" for n in range(1, 8)} <= {
        artifact.name for artifact in find_paper("helfrich2020").artifacts()
    }


def test_number_keeps_its_digits_and_settings_stay_plain_numbers():
    assert {type(value) for e in EXPERIMENTS for value in e.settings.values()} <= {int, float, bool, str, type(None)}
    assert Printed(metric="accuracy", value=0.92).text == "0.92"
    assert Printed(metric="accuracy", value=0.92, digits="0.920").text == "0.920"
    assert Printed(metric="bpc", value=1.43, digits="1.430", error=0.002).text == "1.430 ± 0.002"
    assert Printed(metric="bpc", lost=True).text == "lost"
