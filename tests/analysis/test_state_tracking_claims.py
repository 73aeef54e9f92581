"""The papers' claims on state tracking, on small runs: they hold, and fail where what they are about is taken away.

The cells are alone and without a convolution, and the strings are short, so that a run takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import orthobench as ob
from orthobench.analysis.claims import read_claims
from orthobench.analysis.claims.claim import Comparing
from orthobench.analysis.conditions import VariantData, collect
from orthobench.papers import find_paper
from orthobench.store import open_store

COMMON = {"batch_size": 128, "epochs": 1, "evaluate_every": 50, "optimizer": "adam", "convolution": None}
COMMON |= {"schedule": "constant", "warmup": 0.0, "final_rate": None, "test_size": 512}
PARITY = COMMON | {"language": "parity", "shortest": 2, "longest": 8, "test_shortest": 8, "test_longest": 24}
PARITY |= {"train_size": 128 * 300, "hidden_size": 32, "learning_rate": 1e-2, "solved_at": 0.999}
WORDS = COMMON | {"group": "S3", "shortest": 2, "longest": 8, "test_shortest": 16, "test_longest": 16}
WORDS |= {"train_size": 128 * 800, "hidden_size": 32, "heads": 2, "learning_rate": 1e-2}

Trained = Callable[..., VariantData]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Trained:
    """A function that trains a small run once, and returns its variant."""
    folder = tmp_path_factory.mktemp("tracking")

    @cache
    def variant(task: str, model: str, own: tuple[tuple[str, Any], ...]) -> VariantData:
        name = "-".join(str(value) for _, value in own)
        db = str(folder / f"{model}-{name}.db")
        ob.run(task, model, settings={**(PARITY if task == "formal_language" else WORDS), **dict(own)}, db=db)
        with open_store(db) as store:
            ((only,),) = [condition.variants for condition in collect(store)]
        return only

    return lambda task, model, **own: variant(task, model, tuple(own.items()))


def claims(paper: str, artifact: str, check: str, **where: Any) -> list[Any]:
    """The claims of a table or figure with this check, about experiments with these settings."""
    (described,) = (each for each in find_paper(paper).artifact if each.name == artifact)
    read: list[Any] = list(read_claims(described))
    return [claim for claim in read if claim.check == check and where.items() <= claim.where.items()]


def verdict(claim: Any, own: VariantData, *others: VariantData) -> bool:
    share, _ = claim.judge(own, others) if isinstance(claim, Comparing) else claim.judge(own)
    return share.holds


@pytest.mark.parametrize("model", [pytest.param("mamba", marks=pytest.mark.slow), "deltanet"])
def test_negative_eigenvalues_decide_whether_parity_is_learnt(trained, model):
    """A model in which they have no effect fails the claim, and so does one that always has them."""
    (claim,) = (c for c in claims("grazzi2025", "table 3", "fails_only_here", language="parity") if c.model == model)
    assert (claim.where["negative_eigenvalues"], claim.than["negative_eigenvalues"]) == (False, True)
    with_sign, without = (
        trained("formal_language", model, negative_eigenvalues=negative) for negative in (True, False)
    )
    assert verdict(claim, without, with_sign)
    assert not verdict(claim, without, without)
    assert not verdict(claim, with_sign, with_sign)


@pytest.mark.slow
def test_two_reflections_a_step_decide_whether_words_over_s3_are_learnt(trained):
    (learns,) = claims("siems2025", "README", "ends_below")
    fails = claims("siems2025", "README", "fails_only_here")
    assert len(fails) == 3
    whole = trained("group_word", "deltaproduct", **learns.where)
    assert verdict(learns, whole)
    for claim in fails:
        assert claim.than == learns.where
        lesser = trained("group_word", "deltaproduct", **claim.where)
        short = claim.model_copy(update={"share": 0.5})  # these words are short: a memory of a few steps gets far
        assert verdict(short, lesser, whole), claim.text
        assert not verdict(short, whole, whole)
        assert not verdict(short, lesser, lesser)
        assert not verdict(learns, lesser)


@pytest.mark.slow
def test_more_reflections_reach_farther(trained):
    farther = claims("siems2025", "figure 1", "reaches_farther")
    assert [(claim.where["householders"], claim.than["householders"]) for claim in farther] == [(4, 3), (3, 2)]
    twice, once = (
        trained("group_word", "deltaproduct", householders=number, negative_eigenvalues=True) for number in (2, 1)
    )
    assert verdict(farther[0], twice, once)
    assert not verdict(farther[0], once, twice)
    (stays,) = (claim for claim in claims("siems2025", "figure 1", "holds_lengths") if claim.up_to)
    short = stays.model_copy(update={"up_to": 8})
    assert verdict(short, twice)
    assert not verdict(short, once)
