"""Figures that are studies, on their papers' pages: claims, coverage and their runs; distinct names of conditions."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.claims import has_held
from support.databases import experiment

from orthobench.analysis.claims import ClaimResult, Lack, check_panels, check_runs, read_claims
from orthobench.analysis.claims.curve_shapes import EndsBelow
from orthobench.analysis.conditions import collect
from orthobench.analysis.statistics import Share
from orthobench.papers import Artifact, Study, find_paper, find_study
from orthobench.reporting.account.names import distinguishing_settings
from orthobench.reporting.account.paper_views import StudyClaims, view_paper
from orthobench.reporting.account.studies import StoredStudy, find_result
from orthobench.reporting.account.verdict_sheet import square
from orthobench.reporting.page.templates import environment
from orthobench.store import Benchmark, TraceRow, open_store


def figure(**claim) -> Artifact:
    return Artifact.model_validate({"name": "figure 1", "shows": "study", "claims": [{"text": "", **claim}]})


@pytest.mark.parametrize(
    ("check", "fields", "last", "holds"),
    [
        ("ends_at_distance", {"at_most": 0.5}, [0.4, 0.0], True),
        ("ends_at_distance", {"at_most": 0.5}, [0.6, 0.0], False),
        ("ends_at_distance", {"at_least": 2.0}, [0.0, 3.0], True),
        ("ends_at_distance", {"at_least": 2.0}, [0.0, 1.9], False),
        ("ends_at_distance", {"at_least": 0.8, "at_most": 1.25}, [0.0, 0.9], True),
        ("ends_at_distance", {"at_least": 0.8, "at_most": 1.25}, [0.0, 0.7], False),
        ("ends_at_distance", {"at_least": 0.8, "at_most": 1.25}, [0.0, 1.2], True),
        ("ends_at_distance", {"at_least": 0.8, "at_most": 1.25}, [0.0, 1.3], False),
        ("fixed_points", {"points": 1}, [1.0, 0.0], True),
        ("fixed_points", {"points": 2}, [1.0, 0.0], False),
        ("fixed_points", {"points": 1}, [0.9, 0.0], False),  # it still moves
    ],
)
def test_claims_on_trajectories(check, fields, last, holds):
    """From (1, 0) to `last` in a straight line."""
    panel = {"panel": "x", "trajectories": [np.linspace([1.0, 0.0], last, 5).tolist()]}
    (finding,) = check_panels(figure(check=check, panel="x", **fields), [panel])
    assert has_held(finding) is holds


def test_several_trajectories_are_decided_by_the_extremes():
    """They end at 0.5 and 2 times the distance from which they start, at rest."""
    trajectories = [[[1.0, 0.0], [0.5, 0.0], [0.5, 0.0]], [[0.0, 2.0], [4.0, 0.0], [4.0, 0.0]]]
    claims = [
        {"text": "", "panel": "x", **fields}
        for fields in (
            {"check": "ends_at_distance", "at_most": 2.0},
            {"check": "ends_at_distance", "at_most": 1.9},
            {"check": "ends_at_distance", "at_least": 0.5},
            {"check": "ends_at_distance", "at_least": 0.6},
            {"check": "fixed_points", "points": 2},
            {"check": "fixed_points", "points": 1},
        )
    ]
    artifact = Artifact.model_validate({"name": "figure 1", "shows": "study", "claims": claims})
    results = check_panels(artifact, [{"panel": "x", "trajectories": trajectories}])
    assert [has_held(result) for result in results] == [True, False, True, False, True, False]
    assert results[0].reason == "distance at the end by the one at the start: 0.5 to 2; limit: 2"
    assert results[4].reason == "different ends: 2; length of the last step: 0"


def test_run_claim_ignores_computations_and_vice_versa():
    (of_runs,) = check_panels(figure(check="best", model="rnn"), [])
    (of_panel,) = check_runs(figure(check="fixed_points", panel="a", points=2), [])
    assert (of_runs.lack, of_panel.lack, of_panel.lacking) == (Lack.COMPUTED, Lack.PANEL, ["a"])
    assert not of_runs.is_decided
    assert not of_panel.is_decided


@pytest.fixture
def traced(orthobench, tiny_options):
    """A run with a map of gradients that halve with every step of lag, over 8 steps, and norms of gradients."""
    orthobench("run", "adding", "rnn", *tiny_options)
    lags = np.subtract.outer(np.arange(8), np.arange(8))
    halving = np.where(lags >= 0, 0.5 ** np.maximum(lags, 0), 0.0)
    with open_store("results.db") as store:
        (run,) = store.runs()
        rows = [
            TraceRow("heat_map/h", 3, 12, halving.flatten().tolist()),
            TraceRow("norm", 0, 0, [0.01, 0.1]),
            TraceRow("norm", 3, 12, [0.5, 1.0]),
            TraceRow("sooner", 0, 0, [0.0, 0.0, 1e-4, 1e-2, 1.0]),  # two steps back to a thousandth
            TraceRow("sooner", 3, 12, [0.0, 0.0, 0.0, 1e-6, 1e-2]),  # one
            TraceRow("none", 0, 0, [0.0, 0.0]),
            TraceRow("none", 3, 12, [0.0, 0.0]),
            TraceRow("heat_map/column", 3, 12, [1.0, 0.0, 0.0, 1.0, 3.0, 0.0, 1.0, 3.0, 1.0]),  # means 1, 3, 1
            TraceRow("alike", 0, 0, [0.0, 1e-4, 1e-2, 1.0]),
            TraceRow("alike", 3, 12, [0.0, 0.0, 1e-5, 1e-3]),
        ]
        store.log(run.id, [], rows, {})
        (condition,) = collect(store)
    return condition.variants


@pytest.mark.parametrize(
    ("check", "vector", "fields", "holds"),
    [
        ("forgets", "heat_map/h", {"share": 0.0118}, True),  # (2^-6 + 2^-7) / 2 = 0.01172
        ("forgets", "heat_map/h", {"share": 0.0117}, False),
        ("remembers", "heat_map/h", {"share": 0.0117}, True),
        ("remembers", "norm", {"share": 0.2, "at_start": True}, False),
        ("forgets", "norm", {"share": 0.11, "at_start": True}, True),
        ("remembers", "norm", {"share": 0.5}, True),
        ("forgets_more", "norm", {}, False),
        ("forgets_more", "sooner", {}, True),
        ("forgets_more", "alike", {}, False),
        ("decays_to", "norm", {"share": 0.2}, True),  # 0.5 is left
        ("decays_to", "norm", {"share": 0.1}, False),
        ("fades_to", "alike", {"share": 0.003}, True),  # 0.001 is left of the last step's
        ("fades_to", "alike", {"share": 0.0004}, True),
        ("fades_to", "alike", {"share": 0.0003}, False),
        ("fades_to", "alike", {"share": 0.004}, False),
        ("fades_to", "none", {"share": 0.1}, False),  # there was none at the start
        ("stands_out", "heat_map/column", {"ratio": 3.0}, True),
        ("stands_out", "heat_map/column", {"ratio": 3.1}, False),
        ("near_one", "norm", {"distance": 0.5}, True),
        ("near_one", "norm", {"distance": 0.4}, False),
        ("remembers", "nowhere", {"share": 0.1}, None),
    ],
)
def test_claims_on_gradients(traced, check, vector, fields, holds):
    (finding,) = check_runs(figure(check=check, model="rnn", vector=vector, **fields), traced)
    assert has_held(finding) is holds


def test_paper_shows_its_study_once_it_is_complete(orthobench):
    paper = find_paper("chang2019")
    orthobench("study", "toy-dynamics")
    with open_store("results.db") as store:
        (before,) = (view for view in view_paper(paper, [], {}).artifacts if view.artifact.name == "figure 1")
        assert (before.coverage, before.study.name) == ((0, 1), "toy-dynamics")
        assert {finding.verdict for finding in before.claim_results} == {"not decided"}
        assert before.claim_results[0].reason == f"{Lack.STUDY}: orthobench study toy-dynamics"
        study_result = find_result(store, find_study("toy-dynamics"))
        views = view_paper(paper, [], {}, {"toy-dynamics": study_result}).artifacts
        (after,) = (view for view in views if view.artifact.name == "figure 1")
        assert after.coverage == (1, 1)
        assert [finding.verdict for finding in after.claim_results] == ["held"] * 8
    page = Path(orthobench("report", "--html", "--paper", "chang2019").out.strip()).read_text("utf-8")
    assert page.count('data-condition="study-toy-dynamics"') == 16  # on the paper's page and among the studies
    assert orthobench("reproduce", "chang2019", "--figure", "1").err == (
        "error: figure 1 of chang2019 is a study: orthobench study toy-dynamics\n"
    )


def test_started_study_counts_as_partly_measured(database):
    """Its square gives the number of finished runs. A study without a finished run is not measured."""
    experiment = next(iter(find_paper("helfrich2018").experiments()))
    database.run(experiment, 0, test=[1.0, 0.01])
    (finished,) = (run.key for run in database.store.runs())
    study = find_study("heat-maps")
    conditions = [("figure 4", condition) for condition in collect(database.store)]

    def shown(*keys: str) -> tuple[str, str]:
        record = Benchmark(name=study.record, results={"preset": "paper", "figures": {"figure 4": list(keys)}})
        result = StoredStudy(study, record, conditions if finished in keys else [])
        views = view_paper(find_paper("helfrich2020"), [], {}, {"heat-maps": result}).artifacts
        part = next(view for view in views if view.artifact.name == "figure 4")
        return square(part).status, square(part).words

    assert shown(finished, "another") == ("partial", "runs finished: 1 of 2")
    assert shown("another", "a third") == ("none", "results measured: 0 of 1")
    assert shown(finished)[1].startswith("results measured: 1 of 1")


def test_small_study_decides_nothing(orthobench, tiny_options):
    orthobench("run", "adding", "enrnn", *tiny_options, "-s", "probes=heat_map")

    def claim_results(preset: str) -> dict:
        with open_store("results.db") as store:
            results = {"preset": preset, "figures": {"figures 4 and 5": [store.runs()[0].key]}}
            store.add_benchmark("study heat-maps", results, {})
            result = find_result(store, find_study("heat-maps"))
            assert result is not None
            study_results = {"heat-maps": result}
        return {part.artifact.name: part.claim_results for part in view_paper(paper, [], {}, study_results).artifacts}

    paper = find_paper("helfrich2020")
    (small,) = claim_results("quick")["figure 4"]
    assert small.lack is Lack.STUDY
    whole = claim_results("paper")
    assert all(finding.is_decided for name in ("figure 4", "figure 5") for finding in whole[name])
    assert not any(finding.is_decided for name in ("figure 6", "figure 7") for finding in whole[name])


def test_conditions_of_one_title_are_distinguished_and_tags_exported(orthobench, tiny_options):
    for size in (20, 30):
        options = [text.replace("test_size=20", f"test_size={size}") for text in tiny_options]
        orthobench("run", "adding", "rnn", *options, "--tag", "=sum(A1)")
    with open_store("results.db") as store:
        conditions = collect(store)
    assert [distinguishing_settings(condition, conditions) for condition in conditions] == [
        "20 test sequences",
        "30 test sequences",
    ]
    assert distinguishing_settings(conditions[0], conditions[:1]) == ""
    records = list(csv.DictReader(io.StringIO(orthobench("report", "--format", "csv").out)))
    assert {record["tags"] for record in records} == {"'=sum(A1)"}
    assert "| =sum(A1) |" in orthobench("report", "--format", "markdown").out


def section_of(study: Study, claims: StudyClaims) -> str:
    """The section of a study on the page, with these claims and without figures."""
    part = SimpleNamespace(figures={}, tables=[])
    return (
        environment()
        .get_template("study.html.j2")
        .render(
            result=SimpleNamespace(study=study, remarks=[], has_panels=False),
            account=SimpleNamespace(study_claims={study.name: claims}),
            drawn=SimpleNamespace(parts={f"study-{study.name}": part}),
        )
    )


def test_study_lists_every_claim_that_its_headline_counts():
    study = find_study("gradient-norms")
    claims = [EndsBelow(text=text, check="ends_below", model="rnn", share=0.1) for text in ("it falls", "it ends")]
    results = [ClaimResult(claims[0], Share(0.5, 3, "seed", 3)), ClaimResult(claims[1], None, lack=Lack.RUNS)]
    text = section_of(study, StudyClaims(results, []))
    assert "1 depends on the seed, 1 open" in text
    assert "it falls" in text
    assert "it ends" in text


def test_study_keeps_own_statements_apart_from_the_paper():
    """Readers take "the paper says" and a count of held claims for one another's."""
    study = find_study("state-tracking")
    (claim, *_) = read_claims(study)
    claims = StudyClaims([], [ClaimResult(claim, Share(1.0, 3, "seed", 3))])
    text = section_of(study, claims)
    assert re.search(r"<strong>Our statements:</strong>\s*1 held", text)
    assert "<strong>Background:</strong>" in text
    assert "The paper says" not in text
    assert "claims of the paper" not in text


def test_runs_of_a_study_without_a_record_are_not_called_unmeasured(database):
    """They have its settings, but nobody ran the study as a whole."""
    (group,) = (each for each in find_study("longer-sequences").run if (each.preset, each.task) == ("paper", "adding"))
    for settings in (group.settings, group.settings | {"longer_tests": False}):
        database.run(experiment("lstm", "last", []), 0, [1.0, 0.1], **settings)
    views = view_paper(find_paper("walker2025"), collect(database.store), {}).artifacts
    part = next(view for view in views if view.artifact.study == "longer-sequences")
    assert square(part).status == "partial"
    assert square(part).words == "no complete study; finished runs with its settings: 1"
