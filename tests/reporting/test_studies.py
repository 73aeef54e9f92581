"""The studies: what they ask for, that each run is made once, and that their pages show the database's numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape
from support.pages import figures

from orthobench.papers import find_paper, find_study, papers, studies
from orthobench.papers.paper_study import StudyRun, StudyRuns
from orthobench.plugins import Catalog
from orthobench.reporting.account.names import name_of
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.task import TrainingSettings

ALL = Catalog().built_in("model")
OF_RUNS = [study for study in studies() if study.run]
FIGURES = ("parity", "cycle navigation", "modular arithmetic", "S3", "Z60", "A5")
CASES = [(study, preset) for study in OF_RUNS for preset in ("paper", "quick")]


def config(study, preset):
    tasks = Catalog().names("task")
    missing = {run.task for run in study.runs(preset, ALL)} - set(tasks)
    if missing:
        pytest.skip(f"without the task {missing}")
    return [resolve(Catalog(), run.task, run.model, run.settings, preset) for run in study.runs(preset, ALL)]


def test_runs_of_a_study_match_the_papers_figure():
    of_papers = {
        resolve(Catalog(), experiment.task, experiment.model, {}, experiment=experiment).spec.key
        for name in ("figure 4", "figure 5")
        for experiment in find_paper("helfrich2018").experiments_in(name)
    }
    of_studies = {
        resolve(Catalog(), run.task, run.model, run.settings).spec.key
        for study in studies()
        if study.name in ("orthogonality", "gradient-norms")
        for run in study.runs("paper", ALL)
    }
    assert of_studies == of_papers


@pytest.mark.parametrize(("study", "preset"), CASES, ids=[f"{study.name}-{preset}" for study, preset in CASES])
def test_every_run_of_a_study_is_valid(study, preset):
    configs = config(study, preset)
    assert len(configs) == len(study.runs(preset, ALL))
    if study.name == "gradient-norms":
        assert {run_config.training.max_iterations for run_config in configs} == {300}
        assert {run_config.training.batch_size for run_config in configs} == {50}
    if study.name == "orthogonality":
        assert {run_config.spec.model for run_config in configs} == {"scornn", "full_urnn"}


def test_state_tracking_has_every_model_under_one_protocol_for_each_task():
    study = find_study("state-tracking")
    configs = config(study, "paper")
    runs = study.runs("paper", ALL)
    for figure in FIGURES:
        own = [r for r in runs if r.figure == figure]
        assert list(dict.fromkeys(r.model for r in own)) == ALL
        ranged = [r.model for r in own if r.settings.get("negative_eigenvalues")]
        assert ranged == ["deltanet", "gated_deltanet", "mamba"]
        assert len(own) == len(ALL) + len(ranged)
    assert len({each.spec.variant for each in configs}) == len(configs) == len(runs)
    trained = [{"task": each.spec.task, **each.spec.training, "probes": None} for each in configs]
    assert len({json.dumps(each, sort_keys=True) for each in trained}) == 2
    assert all("error_control" in each.spec.training["probes"] for each in configs)
    assert {each.model_settings.hidden_size for each in configs} == {64}
    layers = {(each.spec.task, each.model_settings.layers, each.model_settings.block) for each in configs}
    assert layers == {("group_word", 1, "post_norm"), ("formal_language", 2, "post_norm")}
    with_paper = {run for paper in papers() for run in paper_variants(paper)}
    assert not with_paper & {each.spec.variant for each in configs}, "its numbers would be shown next to published ones"


def paper_variants(paper):
    experiments = [e for e in paper.experiments() if e.task in ("formal_language", "group_word")]
    return [resolve(Catalog(), e.task, e.model, {}, experiment=e).spec.variant for e in experiments]


@pytest.mark.parametrize("preset", ["paper", "quick"])
def test_sizes_match_the_figures(preset):
    study = find_study("sizes")
    pairs = {"figure 6": [], "figure 7": []}
    for run, run_config in zip(study.runs(preset, ALL), config(study, preset), strict=True):
        short = run_config.model_settings.short_size
        pairs[run.figure].append((run_config.model_settings.hidden_size - short, short))
    fixed, total = (96, 160) if preset == "paper" else (24, 40)
    assert {long for long, _ in pairs["figure 6"]} == {fixed}
    assert {long + short for long, short in pairs["figure 7"]} == {total}
    assert {(0, total), (total, 0)} <= set(pairs["figure 7"])


def test_studies_are_found_and_listed(orthobench):
    listed_ = json.loads(orthobench("study", "--list", "--json").out)
    assert [entry["name"] for entry in listed_] == [study.name for study in studies()]
    listing = orthobench("study", "--list").out
    assert all(study.name in listing and study.figure in listing for study in studies())
    assert "did you mean heat-maps?" in orthobench("study", "heat-map").err
    computed = json.loads(orthobench("study", "toy-dynamics", "--preset", "quick", "--json").out)
    assert (computed["study"], Path(computed["page"]).is_file(), computed["runs"]) == ("toy-dynamics", True, [])
    planned = json.loads(
        orthobench("study", "jacobians", "--preset", "quick", "--dry-run", "--no-profile", "--json").out
    )
    assert planned["page"] is None
    assert {run["model"] for run in planned["runs"]} == {"lstm", "antisymmetric", "scornn"}
    assert "name a study" in orthobench("study").err
    assert orthobench("study").code == 2


@pytest.fixture
def small(monkeypatch, tiny):
    """Every study in a size of which nothing but its structure is left."""
    tiny = {name: value for name, value in tiny.items() if name != "hidden_size"}

    def shrunk(run: StudyRun) -> StudyRuns:
        task = "adding" if run.task == "mnist" else run.task  # which needs no data
        known = Catalog().load("task", task).Settings.model_fields.keys() | TrainingSettings.model_fields.keys()
        fitting = {name: value for name, value in tiny.items() if name in known}
        own = {name: value for name, value in run.settings.items() if name not in {*tiny, "permuted"}}
        if run.model != "enrnn":
            own["hidden_size"] = 8
        return StudyRuns(preset="quick", figure=run.figure, task=task, models=[run.model], settings={**own, **fitting})

    shrunken = tuple(
        study.model_copy(update={"run": [shrunk(run) for run in study.runs("quick", ALL)]}) for study in studies()
    )
    monkeypatch.setattr("orthobench.papers.reading.studies", lambda: shrunken)
    monkeypatch.setattr("orthobench.reporting.account.studies.studies", lambda: shrunken)
    return {study.name: study for study in shrunken}


SMALL = "Here in the small version (preset quick)."


def page(outcome) -> tuple[str, dict]:
    assert outcome.code == 0, outcome.err
    text = Path(outcome.out.strip().splitlines()[-1]).read_text("utf-8")
    return text, figures(text)


def array(value) -> np.ndarray:
    """Numbers of a figure, of which the values of curves have five digits."""
    return np.array(value, dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize("name", [study.name for study in OF_RUNS])
def test_study_is_trained_once(orthobench, small, tmp_path, name):
    arguments = ("study", name, "--preset", "quick")
    dry = orthobench(*arguments, "--dry-run")
    assert "missing" in dry.out
    assert list(tmp_path.iterdir()) == []

    text, data = page(orthobench(*arguments))
    assert str(escape(small[name].title)) in text
    assert SMALL in text
    assert "are finished" not in text
    drawn = data[f"study-{name}"]
    assert drawn
    assert all(figure["data"] for figure in drawn.values())

    again = orthobench(*arguments)
    assert again.err == ""  # no run is trained
    with open_store(str(tmp_path / "results.db")) as store:
        (record,) = store.benchmarks(f"study {name}")
        keys = {key for keys in record.results["figures"].values() for key in keys}
        assert keys == {run.key for run in store.runs()}
        first = len(keys)
    more = orthobench(*arguments, "--seeds", "2")
    assert more.code == 0
    with open_store(str(tmp_path / "results.db")) as store:
        assert len(store.runs()) == 2 * first
        assert len(store.benchmarks(f"study {name}")) == 2
        model = store.runs()[0].model
    assert f"study-{name}" in page(orthobench("report", "--html"))[1]
    assert f"study-{name}" not in page(orthobench("report", "--html", "--model", model))[1]


def last_traces(tmp_path, model):
    with open_store(str(tmp_path / "results.db")) as store:
        (run,) = [run for run in store.runs() if run.model == model]
        return {t.name: np.array(t.values) for t in store.traces([run.id]) if t.iteration == run.iterations}


@pytest.mark.usefixtures("small")
def test_heat_map_shows_the_numbers_of_the_database(orthobench, tmp_path):
    _, data = page(orthobench("study", "heat-maps", "--preset", "quick"))
    traces = last_traces(tmp_path, "enrnn")
    shown = data["study-heat-maps"]
    assert [name.split()[-1] for name in shown] == ["long", "short"]
    for name, figure in shown.items():
        (trace,) = figure["data"]
        z = array(trace["z"])
        logged_map = traces[f"heat_map/{name.split()[-1]}"].reshape(10, 10)
        below = np.tril(np.ones((10, 10), dtype=bool))
        np.testing.assert_allclose(10 ** z[below], logged_map[below], rtol=1e-5)
        assert np.isnan(z[~below]).all()


@pytest.mark.usefixtures("small")
def test_clouds_and_moduli_show_the_numbers_of_the_database(orthobench, tmp_path):
    _, data = page(orthobench("study", "jacobians", "--preset", "quick"))
    along, single, whole = (figure["data"] for figure in data["study-jacobians"].values())
    for model, printed in (("lstm", "LSTM"), ("antisymmetric", "AntisymmetricRNN"), ("scornn", "scoRNN")):
        traces = last_traces(tmp_path, model)
        (cloud,) = [trace for trace in whole if trace["name"] == printed]
        points = np.stack((array(cloud["x"]), array(cloud["y"])), axis=1)
        np.testing.assert_allclose(points.ravel(), traces["jacobian/end_to_end"], rtol=5e-5)
        (steps,) = [trace for trace in single if trace["name"] == printed]
        clouds = [values for name, values in traces.items() if name.startswith("jacobian/eigenvalues/")]
        assert len(array(steps["x"])) == sum(len(values) for values in clouds) / 2
        (line,) = [trace for trace in along if trace.get("name") == printed]
        np.testing.assert_allclose(array(line["y"]), traces["jacobian/modulus_mean"], rtol=5e-5)
        np.testing.assert_allclose(array(line["x"]), traces["jacobian/steps"])


def test_both_precisions_are_shown(orthobench, small, tmp_path):
    _, data = page(orthobench("study", "orthogonality", "--preset", "quick"))
    (figure,) = data["study-orthogonality"].values()
    lines = {trace["name"]: array(trace["y"]) for trace in figure["data"] if "name" in trace}
    with open_store(str(tmp_path / "results.db")) as store:
        for run in store.runs():
            printed = small["orthogonality"].names[run.model]
            assert printed != run.model
            for label, name in ((printed, ""), (f"{printed} W, own precision", "_own_precision")):
                logged_rows = store.metrics([run.id], "probe", f"orthogonality{name}/W")
                logged = np.array([row.value for row in logged_rows])
                np.testing.assert_allclose(lines[label], logged, rtol=5e-5)


@pytest.mark.usefixtures("small")
def test_sizes_figure_ends_at_the_final_values(orthobench, tmp_path):
    _, data = page(orthobench("study", "sizes", "--preset", "quick"))
    drawn = data["study-sizes"]
    assert [name.split(maxsplit=1)[1] for name in drawn] == [
        f"{figure} {what}" for figure in ("figure 6", "figure 7") for what in ("curves", "ends")
    ]
    with open_store(str(tmp_path / "results.db")) as store:
        settings = [(run.spec["model_settings"], run.final_value) for run in store.runs()]
    ends = {(own["hidden_size"], own["short_size"]): value for own, value in settings}
    *_, split = drawn.values()
    line, _ = split["data"]  # and the mark of its end
    assert list(array(line["x"])) == [0, 8, 16, 24, 40]
    np.testing.assert_allclose(array(line["y"]), [ends[40, short] for short in (0, 8, 16, 24, 40)], rtol=5e-5)


@pytest.mark.usefixtures("small")
def test_stability_of_euler_steps_shows_the_numbers_of_the_database(orthobench, tmp_path):
    _, data = page(orthobench("study", "euler-stability", "--preset", "quick"))
    drawn = data["study-euler-stability"]
    assert [name.split(maxsplit=1)[1] for name in drawn] == ["modulus_max", "real_max"]
    with open_store(str(tmp_path / "results.db")) as store:
        for name, figure in zip(("modulus_max", "real_max"), drawn.values(), strict=True):
            lines = [trace for trace in figure["data"] if not trace["name"].endswith("before")]
            assert len(lines) == len(store.runs()) == 5
            logged = [
                np.array(trace.values)
                for run in store.runs()
                for trace in store.traces([run.id])
                if trace.iteration == run.iterations and trace.name == f"euler_stability/{name}"
            ]
            for line in lines:
                assert any(np.allclose(array(line["y"]), values, rtol=5e-5) for values in logged)


@pytest.mark.usefixtures("small")
def test_gradient_bounds_show_the_numbers_of_the_database(orthobench, tmp_path):
    _, data = page(orthobench("study", "gradient-bounds", "--preset", "quick"))
    traces = last_traces(tmp_path, "enrnn")
    drawn = data["study-gradient-bounds"]
    assert [name.split(maxsplit=1)[1] for name in drawn] == ["states", "inputs", "powers"]
    for kind, figure in zip(("state", "input"), drawn.values(), strict=False):
        lines = {trace["name"]: array(trace["y"]) for trace in figure["data"]}
        assert set(lines) == {f"ENRNN short{end}{when}" for end in ("", ", bound") for when in ("", " before")}
        np.testing.assert_allclose(lines["ENRNN short"], traces[f"gradient_bound/{kind}/short"], rtol=5e-5)
        np.testing.assert_allclose(lines["ENRNN short, bound"], traces[f"gradient_bound/{kind}_bound/short"], rtol=5e-5)
    lines = {trace["name"]: array(trace["y"]) for trace in drawn[next(reversed(drawn))]["data"]}
    for matrix in ("W_L", "W_S"):
        np.testing.assert_allclose(lines[f"ENRNN {matrix}"], traces[f"transient_growth/norms/{matrix}"], rtol=5e-5)


@pytest.mark.usefixtures("small")
def test_ends_are_drawn_over_the_only_number_that_differs(orthobench, tmp_path):
    _, data = page(orthobench("study", "negative-ones", "--preset", "quick"))
    drawn = data["study-negative-ones"]
    assert [name.split(maxsplit=1)[1] for name in drawn] == [
        f"{figure} {what}" for figure in ("MNIST", "permuted MNIST") for what in ("curves", "ends")
    ]
    with open_store(str(tmp_path / "results.db")) as store:
        ends = {run.spec["model_settings"]["negative_ones"]: run.final_value for run in store.runs()}
    _, first, _, second = drawn.values()
    for figure in (first, second):
        line = figure["data"][0]
        assert list(array(line["x"])) == sorted(ends) == [0, 1, 2, 4, 6, 8]
        np.testing.assert_allclose(array(line["y"]), [ends[number] for number in sorted(ends)], rtol=5e-5)


def test_unfinished_runs_are_reported(orthobench, small, tmp_path):
    orthobench("study", "heat-maps", "--preset", "quick")
    with open_store(str(tmp_path / "results.db")) as store:
        store.update(store.runs()[0].id, {"status": "running"})
    assert "runs finished: 0 of 1" in page(orthobench("report", "--html"))[0]


@pytest.mark.usefixtures("small")
def test_study_at_paper_size_precedes_a_small_one(orthobench, tmp_path):
    orthobench("study", "heat-maps", "--preset", "quick")
    with open_store(str(tmp_path / "results.db")) as store:
        (record,) = store.benchmarks("study heat-maps")
        for preset in ("paper", "quick"):
            store.add_benchmark("study heat-maps", record.results | {"preset": preset}, {})
    assert SMALL not in page(orthobench("report", "--html"))[0]


@pytest.mark.usefixtures("small")
def test_failing_run_is_reported_and_does_not_end_the_study(orthobench, monkeypatch):
    from orthobench.executors import job

    train = job.train

    def failing(config, *arguments, **options):
        if config.spec.model == "lstm":
            raise ArithmeticError("on purpose")
        return train(config, *arguments, **options)

    monkeypatch.setattr(job, "train", failing)
    outcome = orthobench("study", "gradient-norms", "--preset", "quick")
    assert outcome.code == 1
    assert "ArithmeticError: on purpose" in outcome.err
    assert "1 of 2 runs failed" in outcome.err
    assert "runs finished: 1 of 2" in Path(outcome.out.strip().splitlines()[-1]).read_text("utf-8")


def test_toy_dynamics_are_computed_once_and_stored(orthobench, tmp_path):
    text, data = page(orthobench("study", "toy-dynamics"))
    page(orthobench("study", "toy-dynamics"))
    with open_store(str(tmp_path / "results.db")) as store:
        (record,) = store.benchmarks("study toy-dynamics")
    assert "small version" not in text
    assert "8 not counted" in text
    shown = data["study-toy-dynamics"]
    assert list(shown) == list("abcdefgh")
    for panel in record.results["panels"]:
        marked = [trace for trace in shown[panel["panel"]]["data"] if trace["mode"] == "markers"]
        trajectories = np.array(panel["trajectories"])
        for path, drawn, star in zip(trajectories, marked[::2], marked[1::2], strict=True):
            np.testing.assert_allclose(np.stack((array(drawn["x"]), array(drawn["y"])), axis=1), path, rtol=5e-5)
            np.testing.assert_allclose([*star["x"], *star["y"]], path[0], rtol=5e-5)
        assert len(shown[panel["panel"]]["data"]) == (7 if panel["feedback"] else 6)


MINUTES = {("rnn", 116): 0.5, ("scornn", 170): 2.0, ("lstm", 128): 1.0}
PRINTED = {("rnn", 116): 2.3, ("scornn", 170): 5.3, ("lstm", 128): 5.0}


def table(rows, printed):
    return [
        {"model": model, "hidden_size": n, "minutes": minutes, "printed": printed.get((model, n))}
        for (model, n), minutes in rows.items()
    ]


def measured(quick: bool) -> dict:
    equal = {("rnn", 128): 0.25, ("gru", 128): 0.5}
    shapes = [("equal size", table(equal, {})), ("table 3", table(MINUTES, PRINTED))]
    return {
        "quick": quick,
        "threads": 2,
        "shapes": [{"shape": {"name": name}, "rows": rows} for name, rows in shapes],
    }


def test_times_are_listed_next_to_the_published_ones(orthobench, tmp_path, monkeypatch):
    calls = []

    def measure(models, plan):
        calls.append(plan.quick)
        assert "scornn" in models
        return measured(plan.quick)

    monkeypatch.setattr("orthobench.session.study_session.measure_models", measure)
    text, _ = page(orthobench("study", "time", "--preset", "quick"))
    assert "the times are not meaningful" in text
    text, data = page(orthobench("study", "time"))
    assert "the times are not meaningful" not in text
    page(orthobench("study", "time"))
    assert calls == [True, False]  # asked again in the same place, nothing is measured

    rows = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)]
    assert ["scoRNN", "170", "2", "5.3", "4.00", "2.30"] in rows
    assert ["GRU", "0.5", "2.00"] in rows
    assert ["here, n = 128", "60"] in rows
    assert ["published, PyTorch", "71.86"] in rows
    (figure,) = data["study-time"].values()
    assert {trace["name"] for trace in figure["data"]} >= {"RNN", "scoRNN", "LSTM"}
    dashed = figure["data"][-1]
    np.testing.assert_allclose(array(dashed["y"]) / array(dashed["x"]), 0.5 / 2.3, rtol=5e-5)


@pytest.mark.slow
def test_small_time_study_measures_every_model(orthobench):
    text, _ = page(orthobench("study", "time", "--preset", "quick"))
    printed = find_study("time").names
    assert all(printed.get(name, name_of(name)) in text for name in Catalog().names("model"))
