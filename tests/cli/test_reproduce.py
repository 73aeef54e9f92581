"""`orthobench reproduce --small`: the runs of a small version of a figure, and claims that hold or do not."""

from __future__ import annotations

import pytest
from support.claims import stated
from support.databases import paper

from orthobench.analysis.claims import read_claims
from orthobench.analysis.claims.trajectories import PanelClaim
from orthobench.papers import Artifact, Experiment, Paper, Small, papers
from orthobench.planning.paper import small_runs
from orthobench.plugins import Catalog

IN_SMALL = [(paper, artifact) for paper in papers() for artifact in paper.artifacts() if artifact.small]


def claim(share: float) -> dict:
    return stated("ends_below", text=f"It ends below {share}", share=share)


def with_small(*claims: dict, **small) -> Paper:
    artifact = {"name": "figure 1", "shows": "learning_curves", "claims": claims, "small": small}
    return paper(Experiment(artifact="figure 1", task="adding", model="rnn"), artifacts=[artifact])


@pytest.fixture
def only(monkeypatch, tiny):
    """The one paper that there is, its figure of a tiny run."""

    def make(*claims: dict) -> None:
        only_paper = with_small(*claims, models=["rnn"], settings=tiny)
        monkeypatch.setattr("orthobench.api.papers.papers", lambda: [only_paper])

    return make


@pytest.mark.parametrize(("paper", "artifact"), IN_SMALL, ids=[f"{p.key} {a.name}" for p, a in IN_SMALL])
def test_every_small_claim_is_about_small_runs(paper, artifact):
    specs = [config.spec for config, _ in small_runs(Catalog(), paper, artifact)]
    claims = read_claims(artifact.model_copy(update={"claims": artifact.small.claims or artifact.claims}))
    assert claims
    for figure_claim in claims:
        if isinstance(figure_claim, PanelClaim):
            continue
        settings = [spec.task_settings | spec.model_settings for spec in specs if spec.model == figure_claim.model]
        about = [
            run_settings
            for run_settings in settings
            if all(run_settings[name] == value for name, value in figure_claim.where.items())
        ]
        assert about
        assert {*getattr(figure_claim, "others", [])} <= {spec.model for spec in specs}


def test_every_figure_of_the_first_two_papers_has_a_small_version():
    assert {(paper.key, artifact.name) for paper, artifact in IN_SMALL} >= {
        *(("helfrich2018", f"figure {number}") for number in (1, 2, 4, 5)),
        *(("helfrich2020", f"figure {number}") for number in (1, 2, 4, 5, 6, 7)),
        ("chang2019", "figure 1"),
        ("chang2019", "eigenvalues"),
    }


def test_claims_are_checked_and_runs_trained_once(orthobench, only):
    only(claim(1e9))
    dry = orthobench("reproduce", "--small", "--dry-run")
    assert "1 missing" in dry.out
    outcome = orthobench("reproduce", "--small")
    assert outcome.code == 0, outcome.err
    assert "k figure 1" in outcome.out
    assert outcome.out.splitlines()[-1] == "1 of 1 claims held in the small versions; 1 with fewer than three seeds"
    only(claim(1e9), claim(0.0))
    again = orthobench("reproduce", "--small")
    assert again.code == 1
    assert again.err == ""  # nothing was trained
    assert "did not hold" in again.out
    assert again.out.splitlines()[-1] == "1 of 2 claims held in the small versions; 2 with fewer than three seeds"


@pytest.mark.parametrize("way", ["paper", "small", "file"])
def test_wrong_claim_is_refused_before_training_and_names_its_paper(orthobench, only, monkeypatch, tmp_path, way):
    only(claim(1e9) | {"shared": 2})
    wrong = with_small(claim(1e9) | {"shared": 2}, models=["rnn"])
    for room in ("api.papers", "planning.listed", "api.descriptions"):
        monkeypatch.setattr(f"orthobench.{room}.find_paper", lambda key: wrong)
    (tmp_path / "runs.toml").write_text('[[runs]]\npaper = "k"\n')
    words = {"paper": ["k"], "small": ["--small"], "file": ["--file", str(tmp_path / "runs.toml")]}[way]
    outcome = orthobench("reproduce", *words)
    line = "k figure 1, claim 'It ends below 1000000000.0': unknown field of ends_below 'shared': did you mean share?"
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith("error: ")
    assert outcome.err.strip().endswith(line)


def test_plan_of_several_tasks_has_a_task_column(orthobench):
    (heading, *rows) = orthobench("reproduce", "--small", "--dry-run", "helfrich2020").out.splitlines()
    assert heading.split() == ["run", "task", "model", "settings", "seed", "state"]
    assert {row.split()[1] for row in rows[:2]} == {"adding"}
    assert "copying" in {row.split()[1] for row in rows[:-1]}


def test_unknown_paper_or_figure_is_reported(orthobench):
    assert "has no small versions of figures" in orthobench("reproduce", "--small", "rusch2022lem").err
    outcome = orthobench("reproduce", "--small", "helfrich")
    assert (outcome.code, "unknown paper" in outcome.err) == (2, True)


@pytest.mark.parametrize("wrong", [{"models": []}, {"models": ["rnn"], "study": "sizes"}])
def test_small_version_with_models_and_study_is_refused(wrong):
    with pytest.raises(ValueError, match="names either models or"):
        Artifact(name="figure 1", study=wrong.get("study", ""), small=Small(models=wrong["models"]))


def test_file_lists_the_runs(orthobench, tmp_path):
    file = tmp_path / "runs.toml"
    file.write_text('[[runs]]\npaper = "helfrich2018"\nfigure = "1"\nmodels = ["lstm"]\nseeds = 2\n')
    dry = orthobench("reproduce", "--file", str(file), "--dry-run", "--no-profile")
    assert "4 missing" in dry.out
    for words in (["helfrich2018"], ["--small"], ["--seeds", "2"], ["--figure", "1"]):
        outcome = orthobench("reproduce", "--file", str(file), *words)
        assert (outcome.code, "--file names the runs already" in outcome.err) == (2, True)
