"""Claims in a paper's file: each kind is a class, and a mistake is named with its fix."""

from __future__ import annotations

import re

import pytest
from support.claims import read, stated

from orthobench.analysis.claims import refuse_wrong_claims
from orthobench.analysis.claims.claim import Claim
from orthobench.analysis.claims.curve_shapes import Bypasses, DropsWithin, EndsBelow
from orthobench.analysis.claims.reading import KINDS
from orthobench.errors import UsageError
from orthobench.papers import Paper
from orthobench.reporting.account.paper_views import view_paper


def kinds(claim: type[Claim] = Claim) -> set[type[Claim]]:
    """Return the classes of claims that have a name for files."""
    below = {kind for subclass in claim.__subclasses__() for kind in kinds(subclass)}
    return below | ({claim} if claim.model_fields["check"].default else set())


def test_every_claim_class_is_a_kind_under_its_own_name():
    assert set(KINDS.values()) == {kind for kind in kinds() if isinstance(kind.model_fields["check"].default, str)}
    for check, kind in KINDS.items():
        assert check == re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
        assert kind.__doc__
        assert all(field.description for name, field in kind.model_fields.items() if name != "check"), check


@pytest.mark.parametrize(
    ("check", "fields", "expected"),
    [
        ("ends_below", {"share": 0.1}, EndsBelow(text="", model="rnn", share=0.1)),
        ("bypasses", {"iterations": 200}, Bypasses(text="", model="rnn", iterations=200)),
        ("drops_within", {"epochs": 1.0}, DropsWithin(text="", model="rnn", epochs=1)),
    ],
)
def test_check_names_the_class_and_other_keys_are_its_fields(check, fields, expected):
    assert read(stated(check, **fields)) == expected


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (stated("ends_bellow", share=0.1), "unknown check 'ends_bellow': did you mean ends_below"),
        (stated("xyz"), "unknown check 'xyz': known: best, bypasses, "),
        ({"text": "so", "model": "rnn"}, "check is missing; known: best, bypasses, "),
        (stated("ends_below"), "ends_below needs share: the highest end, as a share of the baseline"),
        (stated("bypasses", iteration=200), "bypasses needs iterations: the limit, in iterations at the baseline"),
        (stated("bypasses", iteration=200), "unknown field of bypasses 'iteration': did you mean iterations"),
        (stated("ends_below", factor=0.1, share=0.1), "unknown field of ends_below 'factor': "),
        (stated("best", share=0.1), "unknown field of best 'share': "),
        (stated("ends_below", panel="a", share=0.1), "unknown field of ends_below 'panel': "),
        (stated("ends_below", share="low"), "ends_below.share: Input should be a valid number"),
        (stated("ends_below", share=-0.1), "ends_below.share: Input should be greater than or equal to 0"),
        (stated("bypasses", iterations=0.5), "bypasses.iterations: Input should be a valid integer"),
        (stated("ends_below", model="", share=0.1), "ends_below.model: String should have at least 1 character"),
        ({"text": "so", "check": "ends_at_distance", "panel": "a"}, "give at_least, at_most or both"),
        ({"text": "so", "check": "fixed_points", "points": 2}, "fixed_points needs panel: the panel"),
        (stated("holds_lengths"), "give up_to, lost_from or both"),
        (stated("holds_lengths", up_to=9, lost_from=9), "lost_from should be greater than up_to"),
        ({"check": "ends_below", "model": "rnn", "share": 0.1}, "ends_below needs text: the statement in words"),
    ],
)
def test_invalid_claim_names_the_fix(table, message):
    with pytest.raises(UsageError) as raised:
        read(table)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"figure 1, claim '{table.get('text', '')}': ")
    assert "\n" not in str(raised.value)


def written(*claims: dict, small: dict | None = None, study: dict | None = None) -> Paper:
    """A paper with claims about its figure 1, which has a row for an IRNN and for an LSTM at each of two lengths."""
    experiments = [
        {"artifact": "figure 1", "task": "mnist", "model": model, "task_settings": {"permuted": False}}
        | {"model_settings": {"hidden_size": size}}
        for model, size in (("irnn", 100), ("lstm", 100), ("lstm", 128))
    ]
    figure = {"name": "figure 1", "shows": "learning_curves", "claims": [*claims]} | ({"small": small} if small else {})
    about = {"title": "t", "subject": "s", "authors": "a", "venue": "v", "year": 2015, "priority": 1}
    content = {"key": "le2015", "experiment": experiments, "artifact": [figure], "study": [study] if study else []}
    return Paper.model_validate(about | content)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"metric": "cross_entropi"}, "unknown metric 'cross_entropi': did you mean cross_entropy?"),
        ({"metric": "cross_entropi", "split": "test"}, "unknown metric 'cross_entropi': did you mean cross_entropy?"),
        ({"metric": "cross_entropy"}, "cross_entropy is a metric of the task and not of a probe: give split='test'"),
        ({"metric": "orthogonalty/W"}, "unknown metric 'orthogonalty/W': did you mean orthogonality?"),
        ({"check": "remembers", "vector": "gradient_nrm/h"}, "'gradient_nrm/h': did you mean gradient_norm or "),
        ({"model": "irrn"}, "unknown model 'irrn': did you mean irnn?"),
        ({"where": {"permutd": False}}, "unknown setting 'permutd': did you mean permuted?"),
        ({"where": {"permuted": True}}, "no experiment of irnn has permuted=true: give false"),
        ({"where": {"hidden_size": 128}}, "no experiment of irnn has hidden_size=128: give 100"),
        ({"check": "best", "others": ["lsmt"]}, "unknown model 'lsmt': did you mean lstm?"),
        (
            {"check": "best", "others": ["lstm"], "than": {"hidden_size": 99}},
            "no experiment of lstm has hidden_size=99: ",
        ),
        ({"check": "best", "than": {"hiden_size": 128}}, "unknown setting 'hiden_size': did you mean hidden_size"),
    ],
    ids=str,
)
def test_claim_that_selects_nothing_is_refused(claim, message):
    table = {"check": "ends_below", "text": "so", "model": "irnn"} | claim
    table |= {"share": 0.1} if table["check"] in ("ends_below", "remembers") else {}
    with pytest.raises(UsageError) as raised:
        refuse_wrong_claims(written(table))
    assert str(raised.value).startswith("le2015 figure 1, claim 'so': ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_report_refuses_what_reproduce_refuses():
    paper = written(stated("ends_below", "irnn", metric="cross_entropi", share=0.1))
    with pytest.raises(UsageError, match="did you mean cross_entropy"):
        view_paper(paper, [], {})


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"model": "lsmt"}, "unknown model 'lsmt': did you mean lstm?"),
        ({"metric": "orthogonalty/W"}, "unknown metric 'orthogonalty/W': did you mean orthogonality?"),
        ({"metric": "mze", "split": "test"}, "unknown metric 'mze': did you mean mse?"),
        ({"where": {"hiden_size": 8}}, "unknown setting 'hiden_size': did you mean hidden_size"),
        ({"where": {"sequence_length": 12}}, "no run of lstm has sequence_length=12: give 10, 20"),
    ],
    ids=str,
)
@pytest.mark.parametrize("of", ["figure", "small version", "study"])
def test_claim_about_the_runs_of_a_study_is_refused_alike(claim, message, of):
    claims = [{"check": "ends_below", "text": "so", "model": "lstm", "share": 0.1} | claim]
    study = {"name": "s", "title": "t", "figure": "f", "finding": "f", "assumptions": "a", "drawing": "sizes"}
    lengths = {"points": [{"sequence_length": 10}, {"sequence_length": 20}]}
    runs = [{"preset": "quick", "figure": "f", "task": "adding", "models": ["lstm"], **lengths}]
    figure = {"name": "figure 2", "shows": "study", "study": "s", "claims": claims if of == "figure" else []}
    paper = written(study=study | {"run": runs, "claims": claims if of == "study" else []})
    (first,) = paper.artifact
    small = {"small": {"claims": claims}} if of == "small version" else {}
    second = type(first).model_validate(figure | small)
    with pytest.raises(UsageError) as raised:
        refuse_wrong_claims(paper.model_copy(update={"artifact": [first, second]}))
    assert message in str(raised.value)
    assert ", claim 'so': " in str(raised.value)


def test_models_of_small_versions_and_studies_are_known_too():
    wrong = stated("ends_below", "lsmt", share=0.1)
    study = {"name": "s", "title": "t", "figure": "f", "finding": "f", "assumptions": "a", "drawing": "sizes"}
    runs = [{"preset": "quick", "figure": "f", "task": "adding", "models": ["lstm"]}]
    for paper in (
        written(small={"models": ["lstm"], "claims": [wrong]}),
        written(study=study | {"run": runs, "claims": [wrong]}),
    ):
        with pytest.raises(UsageError, match="unknown model 'lsmt': did you mean lstm"):
            refuse_wrong_claims(paper)


def test_claims_that_select_experiments_are_accepted():
    claims = [
        stated("ends_below", "irnn", share=0.1, metric="accuracy", split="test", where={"permuted": False}),
        stated("ends_below", "lstm", share=0.1, metric="orthogonality/W"),
        stated("best", "irnn", others=["lstm"], where={"hidden_size": 100}, than={"hidden_size": 128}),
    ]
    refuse_wrong_claims(written(*claims))
