"""Two selections beside each other, and the tests between them."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from orthobench.analysis.statistics import compare_paired, compare_unpaired, holm


def test_paired_p_is_the_share_of_sign_changes_as_far_out():
    """Against every change of signs, counted by hand."""
    first, second = [1.0, 2.5, 3.0, 4.2, 5.0, 2.0], [0.5, 2.0, 3.2, 3.0, 4.0, 1.9]
    differences = np.subtract(first, second)
    means = [np.mean(differences * signs) for signs in itertools.product((1, -1), repeat=6)]
    expected = 2 * np.mean([mean >= differences.mean() - 1e-12 for mean in means])
    result = compare_paired(first, second)
    assert result.p == pytest.approx(expected)
    assert result.smallest_p == 2 / 2**6
    assert result.difference.mean == pytest.approx(differences.mean())
    assert result.effect == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert "exact" in result.test


def test_three_seeds_are_called_too_few():
    result = compare_paired([1.0, 1.1, 1.2], [9.0, 9.2, 9.1])
    assert result.p == result.smallest_p == 0.25
    assert result.words == "too few seeds: no difference, however large, could give p below 0.25"
    assert compare_paired([1.0] * 6, [2.0, 3, 4, 5, 6, 7]).words == ""


def test_unpaired_p_is_the_share_of_splits_as_far_out():
    first, second = [1.0, 2.0, 3.5, 2.2], [3.0, 4.0, 5.0]
    pool = np.array(first + second)
    splits = [list(chosen) for chosen in itertools.combinations(range(7), 4)]
    means = [pool[chosen].mean() - np.delete(pool, chosen).mean() for chosen in splits]
    observed = np.mean(first) - np.mean(second)
    expected = min(1.0, 2 * np.mean([mean <= observed + 1e-12 for mean in means]))
    result = compare_unpaired(first, second)
    assert result.p == pytest.approx(expected)
    assert result.smallest_p == 2 / math.comb(7, 4)
    pooled = math.sqrt((3 * np.var(first, ddof=1) + 2 * np.var(second, ddof=1)) / 5)
    assert result.effect == pytest.approx(observed / pooled)


def test_what_cannot_be_compared():
    assert compare_paired([1.0], [2.0]) is None
    assert compare_unpaired([], [1.0, 2.0]) is None
    assert compare_unpaired([1.0], [2.0, 3.0]) is None
    assert compare_paired([1.0, 2.0], [0.0, 1.0]).effect is None  # differences without any spread


def test_holm_as_in_a_worked_example():
    """Four tests: 4 x 0.005, 3 x 0.01, 2 x 0.03, then 0.04, raised to what comes before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.fixture
def swept(orthobench, tiny_options):
    assert orthobench("sweep", "adding", "--models", "rnn,lstm", "--seeds", "3", *tiny_options).code == 0
    return orthobench


def test_models_are_compared_over_common_seeds(swept):
    (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    values = {
        model: [run["final"] for run in json.loads(swept("ls", "--json", "--model", model).out)]
        for model in ("rnn", "lstm")
    }
    assert contrast["paired"] is True
    assert contrast["settings"]["model"] == ["rnn", "lstm"]
    assert contrast["settings"]["forget_bias"][0] == "–"
    assert contrast["environment"] == {}
    assert contrast["result"]["n"] == [3, 3]
    assert contrast["result"]["difference"] == pytest.approx(np.subtract(values["rnn"], values["lstm"]).mean())
    assert contrast["result"]["smallest_p"] == 0.25
    text = swept("compare", "model=rnn", "model=lstm").out
    assert "too few seeds" in text
    assert "paired sign-flip permutation test (exact)" in text


def test_many_are_adjusted_and_runs_have_names(swept):
    key = json.loads(swept("ls", "--json").out)[0]["run"]
    contrasts = json.loads(swept("compare", "model=rnn", "model=lstm", f"key={key}", "seed=0", "--json").out)
    assert [contrast["paired"] for contrast in contrasts] == [True, False, False]
    assert (contrasts[0]["result"]["p"], contrasts[0]["result"]["p_holm"]) == (0.25, 0.5)  # two tests, not three
    assert "result" not in contrasts[1]
    assert len(contrasts[1]["runs"][1]) == 1
    assert "too few finished runs" in swept("compare", key[:8], "model=lstm,seed=1").out


@pytest.mark.parametrize(
    ("selections", "message"),
    [
        (["model=rnn"], "name two selections"),
        (["model=rnn", "model=gru"], "no run has model=gru; runs have model lstm, rnn"),
        (["model=rnn", "colour=red"], "unknown column or setting 'colour'"),
        (["model=rnn", "model="], "write KEY=VALUE"),
        (["model=rnn", "ffff"], "there is no run 'ffff'"),
    ],
)
def test_mistakes_are_told(swept, selections, message):
    outcome = swept("compare", *selections)
    assert outcome.code == 2
    assert message in outcome.err


def test_other_tasks_are_cautioned_about(swept, tiny_options):
    options = [option if option != "sequence_length=10" else "sequence_length=12" for option in tiny_options]
    swept("sweep", "adding", "--models", "rnn", "--seeds", "3", *options)
    text = swept("compare", "model=rnn,sequence_length=10", "model=rnn,sequence_length=12").out
    assert "these numbers are not of the same task" in text


def test_different_metrics_are_refused_with_the_way_out(swept, tiny_options):
    swept("run", "copying", "rnn", *tiny_options)
    refused = swept("compare", "model=rnn", "seed=0")
    assert refused.code == 2
    assert "different metrics: cross_entropy, mse; narrow both to a task: task=adding, task=copying" in refused.err


def test_mixed_settings_are_cautioned_about_and_found_in_any_notation(swept, tiny_options):
    assert not json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)[0]["caution"]
    swept("run", "adding", "rnn", *tiny_options, "-s", "learning_rate=0.0007")
    (mixed,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    assert mixed["settings"]["learning_rate"] == ["0.001, 0.0007", "0.001"]
    assert mixed["caution"] == "'model=rnn' mixes 2 settings of models or training: narrow it by key=value"
    (narrowed,) = json.loads(swept("compare", "model=rnn,learning_rate=7e-4", "model=lstm", "--json").out)
    assert not narrowed["caution"]
    assert len(narrowed["runs"][0]) == 1
