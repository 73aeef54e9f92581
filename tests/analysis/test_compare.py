"""Two selections beside each other, and the tests between them."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, ttest_ind, wilcoxon
from support.databases import RunDatabase, experiment
from support.records import run_record

from orthobench.analysis import compare, statistics
from orthobench.analysis.compare import contrasts
from orthobench.analysis.inference import compare_paired, compare_unpaired, holm
from orthobench.api.commands import command_of, deciding
from orthobench.cli.outcomes import of_contrast
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, open_store
from orthobench.store.sqlite import protect
from orthobench.system.location import Location


def test_paired_p_value_matches_all_sign_changes():
    """Against every change of signs of the ranks, counted by hand."""
    first, second = [1.0, 2.5, 3.0, 4.2, 5.0, 2.0], [0.5, 2.0, 3.2, 3.0, 4.0, 1.9]
    ranks = np.array([3.5, 3.5, 2, 6, 5, 1])  # of 0.5, 0.5, 0.2, 1.2, 1.0 and 0.1
    observed = np.mean(ranks * [1, 1, -1, 1, 1, 1])
    means = [np.mean(ranks * signs) for signs in itertools.product((1, -1), repeat=6)]
    result = compare_paired(first, second)
    assert result.p == pytest.approx(2 * np.mean([mean >= observed for mean in means]))
    assert result.smallest_p == 2 / 2**6
    assert result.difference.mean == pytest.approx(np.subtract(first, second).mean())
    assert result.first_lower == pytest.approx(1 / 6)
    assert "exact" in result.test


@pytest.mark.parametrize(
    ("first", "second", "lower"),
    [
        ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], 0.5),  # two ties, one pair each way
        ([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 3.0, 4.0, 5.0, 4.0], 0.7),  # (3 + 1/2) / 5
        ([math.inf, 0.1, math.inf], [math.inf, 0.2, math.inf], 2 / 3),  # two runs without a value are a tie
        ([0.3, 0.3], [0.3, 0.3], 0.5),
    ],
)
def test_tie_counts_as_half_a_win_for_paired_runs(first, second, lower):
    assert compare_paired(first, second).first_lower == pytest.approx(lower)
    assert compare_paired(second, first).first_lower == pytest.approx(1 - lower)


def test_tie_counts_as_half_a_win_for_independent_runs():
    """Of six pairs two are ties, and the first leads in three: (3 + 2/2) / 6."""
    first, second = [1.0, 2.0], [2.0, 1.0, 3.0]
    assert compare_unpaired(first, second).first_lower == pytest.approx(4 / 6)
    assert compare_unpaired(second, first).first_lower == pytest.approx(2 / 6)


def test_paired_test_matches_wilcoxon():
    """Without ties and zeros the test of signed ranks is Wilcoxon's, of which scipy knows the distribution."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        first, second = rng.normal(0.4, 1, 9), rng.normal(0, 1, 9)
        expected = wilcoxon(first, second, method="exact").pvalue
        assert compare_paired(first, second).p == pytest.approx(expected)


def test_three_seeds_are_reported_as_too_few():
    result = compare_paired([1.0, 1.1, 1.2], [9.0, 9.2, 9.1])
    assert result.p == result.smallest_p == 0.25
    assert result.words == "too few seeds: no difference, however large, could be significant"
    assert compare_paired([1.0] * 6, [2.0, 3, 4, 5, 6, 7]).words == ""


def test_unpaired_p_value_matches_mann_whitney():
    """Of which scipy knows the distribution without ties; the interval is Welch's."""
    first, second = [1.0, 2.0, 3.5, 2.2], [3.0, 4.0, 5.0]
    result = compare_unpaired(first, second)
    assert result.p == pytest.approx(mannwhitneyu(first, second, method="exact").pvalue)
    assert result.smallest_p == 2 / math.comb(7, 4)
    assert result.first_lower == 11 / 12
    welch = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert result.difference.mean - result.difference.half_width == pytest.approx(welch.low)
    assert result.difference.mean + result.difference.half_width == pytest.approx(welch.high)


def test_diverged_runs_rank_worst_and_are_kept():
    """Four of five seeds of the first diverge: its only finished run is the best of all and proves nothing."""
    lost = math.inf
    result = compare_unpaired([0.01, lost, lost, lost, lost], [0.02, 0.021, 0.022, 0.023, 0.024])
    assert result.n == (5, 5)
    assert result.first_lower == 0.2
    assert result.difference.mean == pytest.approx(0.01 - 0.022)
    ranks = np.array([1, 8.5, 8.5, 8.5, 8.5, 2, 3, 4, 5, 6])
    sums = [ranks[list(chosen)].sum() for chosen in itertools.combinations(range(10), 5)]
    assert result.p == pytest.approx(2 * np.mean([total >= ranks[:5].sum() for total in sums]))
    assert compare_paired([0.01, lost, lost, lost, lost, lost], [0.02] * 6).p > 0.05
    assert compare_paired([lost] * 6, [0.02] * 6).p == 2 / 2**6
    assert compare_paired([lost] * 6, [lost] * 6).p == 1


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        compare_paired([1.0, math.nan], [1.0, 2.0])
    with pytest.raises(ValueError, match="NaN"):
        compare_unpaired([1.0, 2.0], [1.0, math.nan])


def test_incomparable_samples_are_refused():
    assert compare_paired([1.0], [2.0]) is None
    assert compare_unpaired([], [1.0, 2.0]) is None
    assert compare_unpaired([1.0], [2.0, 3.0]) is None
    assert compare_unpaired([1.0, 1.0], [1.0, 1.0]).difference.half_width == 0  # no spread


def test_holm_adjustment_matches_a_worked_example():
    """Four tests: 4 x 0.005, 3 x 0.01, 2 x 0.03, then 0.04, raised to what comes before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.fixture
def swept(after, tiny_options):
    return after(("sweep", "adding", "--models", "rnn,lstm", "--seeds", "3", *tiny_options))


def finals(swept, model):
    return {run["seed"]: run["final"] for run in json.loads(swept("ls", "--json", "--model", model).out)}


def test_models_are_compared_over_common_seeds(swept):
    """The curves have fewer than ten tests, so a run's end is its last test."""
    rnn, lstm = finals(swept, "rnn"), finals(swept, "lstm")
    for pairing, paired, smallest in ((("--paired",), True, 0.25), ((), False, 0.1)):
        (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json", *pairing).out)
        assert contrast["paired"] is paired
        assert contrast["settings"]["model"] == [["rnn"], ["lstm"]]
        assert contrast["settings"]["forget_bias"] == [[None], [2.0]]
        assert contrast["environment"] == {}
        assert contrast["statuses"] == [{"finished": 3}, {"finished": 3}]
        assert [side["value"] for side in contrast["medians"]] == [np.median([*side.values()]) for side in (rnn, lstm)]
        assert contrast["result"]["n"] == [3, 3]
        differences = [rnn[seed] - lstm[seed] for seed in rnn]
        assert contrast["result"]["difference"] == pytest.approx(np.mean(differences))
        assert contrast["result"]["smallest_p"] == smallest
        text = swept("compare", "model=rnn", "model=lstm", *pairing).out
        assert "could be significant" in text
        assert ("paired sign-flip permutation test of the ranks (exact)" in text) is paired


def test_six_common_seeds_are_paired_by_default(swept, tiny_options):
    swept("sweep", "adding", "--models", "rnn,lstm", "--seeds", "6", *tiny_options)
    (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    assert (contrast["paired"], contrast["result"]["smallest_p"], contrast["result"]["words"]) == (True, 2 / 64, None)
    (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json", "--unpaired").out)
    assert (contrast["paired"], contrast["result"]["smallest_p"]) == (False, pytest.approx(2 / 924))


def test_medians_are_those_of_the_pairs_that_are_compared(swept, tmp_path, tiny_options):
    """Two seeds that the LSTM lacks are far off."""
    swept("sweep", "adding", "--models", "rnn,lstm", "--seeds", "6", *tiny_options)
    swept("sweep", "adding", "--models", "rnn", "--seeds", "8", *tiny_options)
    with open_store(str(tmp_path / "results.db")) as store:
        for run in store.runs():
            value = 6.5 if run.seed > 5 else run.seed / 100
            store.rewind(run.id, -1, "t")
            store.log(run.id, [MetricRow("test", "mse", 1, 20, value)], [], {"final_value": value})
    (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    assert (contrast["result"]["n"], contrast["statuses"][0]) == ([6, 6], {"finished": 8})
    (first, second) = contrast["medians"]
    assert first == second
    assert first["value"] == pytest.approx(0.025)


CELL = """
import torch


class Mine(torch.nn.RNN):
    factor = 1.0

    def forward(self, x, state=None):
        return super().forward(self.factor * x, state)


class Other(Mine):
    pass
"""


def test_runs_of_earlier_code_are_left_out_unless_their_version_is_named(orthobench, tmp_path, tiny_options):
    for factor in ("1.0", "0.5"):
        (tmp_path / "cell.py").write_text(CELL.replace("1.0", factor))
        models = "./cell.py:Mine,./cell.py:Other,rnn" if factor == "1.0" else "./cell.py:Mine,rnn"
        done = orthobench("sweep", "adding", "--models", models, "--seeds", "2", *tiny_options, "-q")
        assert done.code == 0, done.err
    with open_store(str(tmp_path / "results.db")) as store:
        mine = store.runs(model="cell.py:Mine")
    old, new = mine[:2], mine[2:]
    version = old[0].spec["model_version"]
    for selection, chosen in (("", new), (f",model_version={version}", old)):
        words = ["compare", f"model=./cell.py:Mine{selection}", "model=rnn", "--json"]
        (contrast,) = json.loads(orthobench(*words).out)
        assert sorted(contrast["runs"][0]) == sorted(run.key for run in chosen)
        assert (f"model_version={version} selects them" in (contrast["caution"] or "")) is (chosen is new)
    # Also beside a class of the same file that has only that version.
    (contrast,) = json.loads(orthobench("compare", "task=adding", "model=rnn", "--json").out)
    assert f"model_version={version} selects them" in contrast["caution"]


def test_diverged_run_is_counted_and_ranks_worst(swept, tmp_path):
    with open_store(str(tmp_path / "results.db")) as store:
        best = min(store.runs(model="rnn"), key=lambda run: run.final_value)
        store.update(best.id, {"status": Status.DIVERGED, "final_value": None, "best_value": None})
    (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    assert contrast["statuses"][0] in ({"finished": 2, "diverged": 1}, {"diverged": 1, "finished": 2})
    assert contrast["result"]["n"] == [3, 3]
    finished = [value for seed, value in finals(swept, "rnn").items() if seed != best.seed]
    assert contrast["medians"][0]["value"] == max(finished)  # the diverged one stands above both
    text = swept("compare", "model=rnn", "model=lstm").out
    assert "1 diverged" in text
    assert "a diverged run is the worst" in text
    # The summary leaves out the difference of the means, because those of the finished runs would mislead.
    for first, shown in (("model=rnn", ""), ("model=lstm", "0 [")):
        with open_store(str(tmp_path / "results.db")) as store:
            (each,) = contrasts(store, [first, "model=lstm"], {}, lambda run: run.status)
        difference = of_contrast(each).cells["mean difference (95 %)"]
        assert difference.startswith(shown)
        assert bool(difference) == bool(shown)


def test_trials_of_a_search_are_left_out(swept, tiny_options):
    """They are judged by validation data alone, so they have no tests."""
    trial = ("-s", "judged_by=validation_only", "-s", "validation_size=10")
    assert swept("sweep", "adding", "--models", "rnn", *tiny_options, *trial).code == 0
    (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    assert contrast["statuses"] == [{"finished": 3}, {"finished": 3}]
    assert contrast["caution"] == "'model=rnn' leaves out the trials of searches, which have no tests"
    alone = swept("compare", "model=rnn,judged_by=validation_only", "model=lstm")
    assert (alone.code, "selects only trials of searches (1), and trials have no tests" in alone.err) == (2, True)
    (run,) = json.loads(swept("ls", "--json", "--where", "judged_by=validation_only").out)
    named = swept("compare", run["run"], "model=lstm")
    assert (named.code, "is a trial of a search, which has no tests" in named.err) == (2, True)


@pytest.mark.parametrize(("change", "shown"), [(None, "no value"), (math.nan, "the value NaN")])
def test_finished_run_without_a_value_is_refused(swept, tmp_path, change, shown):
    with open_store(str(tmp_path / "results.db")) as store:
        run = store.runs(model="rnn")[0]
        if change is None:
            store.rewind(run.id, -1, "t")
        else:
            store.log(run.id, [MetricRow("test", "mse", 99, 10_000, change)], [], {})
        store.update(run.id, {"final_value": None, "status": Status.FINISHED})
    for value in ("end", "final"):
        outcome = swept("compare", "model=rnn", "model=lstm", "--value", value)
        assert outcome.code == 2
        assert f"run {run.key} is finished and has {shown if value == 'end' else 'no value'} of mse" in outcome.err


def test_end_of_the_curve_is_compared_and_not_one_lucky_test(swept, tmp_path):
    """Each run of the first gets thirty tests at 0.2, of which the last alone is 0.01."""
    with open_store(str(tmp_path / "results.db")) as store:
        for run in store.runs(model="rnn"):
            store.rewind(run.id, -1, "t")
            rows = [MetricRow("test", "mse", i, 10 * i, 0.01 if i == 29 else 0.2) for i in range(30)]
            store.log(run.id, rows, [], {"final_value": 0.01, "best_value": 0.01})
    medians = {
        value: json.loads(swept("compare", "model=rnn", "model=lstm", "--json", *option).out)[0]["medians"][0]["value"]
        for value, option in (("end", ()), ("final", ("--value", "final")), ("best", ("--value", "best")))
    }
    assert medians == {"end": 0.2, "final": 0.01, "best": 0.01}


@pytest.fixture
def clear(swept, tmp_path):
    """The command line in a folder where each of three seeds of the LSTM is worse than each of the plain RNN."""
    with open_store(str(tmp_path / "results.db")) as store:
        for run in store.runs():
            value = run.seed / 100 + (0.5 if run.model == "lstm" else 0.1)
            store.rewind(run.id, -1, "t")
            store.log(run.id, [MetricRow("test", "mse", 1, 20, value)], [], {"final_value": value})
    return swept


def test_models_apart_in_every_seed_are_so_called_with_the_seeds_that_decide(clear):
    (contrast,) = json.loads(clear("compare", "model=rnn", "model=lstm", "--json").out)
    assert (contrast["standing"], contrast["verdict"]) == ("worse in every seed", "worse in every seed")
    assert contrast["deciding_seeds"] == 4
    (turned,) = json.loads(clear("compare", "model=lstm", "model=rnn", "--json").out)
    assert turned["verdict"] == "better in every seed"
    (paired,) = json.loads(clear("compare", "model=rnn", "model=lstm", "--paired", "--json").out)
    assert paired["deciding_seeds"] == 6
    both = json.loads(clear("compare", "model=rnn", "model=lstm", "model=rnn", "--json").out)
    assert [(each["verdict"], each["deciding_seeds"]) for each in both] == [
        ("worse in every seed", 5),
        ("overlaps", None),
    ]


def test_models_that_both_solve_the_task_are_not_tested(swept, tmp_path):
    """Each seed of the LSTM has a thousandth of the baseline's error, and each of the plain RNN a millionth."""
    with open_store(str(tmp_path / "results.db")) as store:
        for run in store.runs():
            value = (1e-3 if run.model == "lstm" else 1e-6) * run.baselines["mse"] * (1 + run.seed / 100)
            store.rewind(run.id, -1, "t")
            store.log(run.id, [MetricRow("test", "mse", 1, 20, value)], [], {"final_value": value})
    (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    assert (contrast["standing"], contrast["verdict"], contrast["deciding_seeds"]) == (
        "both solve it",
        "both solve it",
        None,
    )


def test_runs_of_two_tasks_do_not_both_solve_one(tmp_path):
    """Two models have the answer with T = 10 and with T = 12, in each of three seeds."""
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        database = RunDatabase(store)
        for model, length in itertools.product(("rnn", "lstm"), (10, 12)):
            for seed in range(3):
                test = [1e-4 * (1 + seed / 10)] * 4
                database.run(experiment(model, "last", []), seed, test=test, sequence_length=length)

        def standing(*selections: str) -> str:
            (contrast,) = contrasts(store, selections, {}, lambda run: run.status)
            return str(contrast.standing)

        assert standing("model=rnn,sequence_length=10", "model=lstm,sequence_length=10") == "both solve it"
        assert standing("model=rnn,sequence_length=10", "model=lstm,sequence_length=12") == "overlaps"
        assert standing("model=rnn", "model=lstm") == "overlaps"


def test_printed_commands_add_the_seeds_that_decide(clear, tmp_path):
    """Three seeds of each are there, and are not trained again."""
    text = clear("compare", "model=rnn", "model=lstm").out
    assert "worse in every seed  seeds of each for a test: 4" in text
    assert "--db" not in text
    protect(tmp_path / "results.db")
    text = clear("compare", "model=rnn", "model=lstm").out
    commands = re.findall(r"^  orthobench (sweep .*)$", text.partition("bring these to 4 seeds:")[2], re.M)
    assert all(command.endswith(" --db results.db") for command in commands)
    assert [re.search(r"--models (\w+)", command)[1] for command in commands] == ["rnn", "lstm"]
    for command in commands:
        planned = json.loads(clear(*shlex.split(command), "--dry-run", "--no-profile", "--json").out)
        assert [(run["seed"], run["state"]) for run in planned] == [
            *((seed, "finished") for seed in range(3)),
            (3, "missing"),
        ]


def test_commands_are_those_of_variants_with_too_few_seeds_alone(tmp_path):
    """The RNN has the four seeds that a test takes. The LSTM has a seed with each of two rates, which is not seed 0."""
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        database = RunDatabase(store)
        for model, rate, seeds in (("rnn", 0.1, range(4)), ("lstm", 0.1, [0]), ("lstm", 0.2, [1])):
            for seed in seeds:
                database.run(experiment(model, "last", []), seed, test=[0.1] * 4, learning_rate=rate)
        (contrast,) = contrasts(store, ["model=rnn", "model=lstm"], {}, lambda run: run.status)
        assert (str(contrast.standing), contrast.deciding) == ("few seeds", 4)
        found = deciding([contrast], Location("made.db"))
    parts = [re.findall(r"--models \w+|learning_rate=\S+|--seeds \S+", command) for command in found]
    expected = (("4", 0.1), ("2-4", 0.2))
    assert parts == [["--models lstm", f"--seeds {seeds}", f"learning_rate={rate}"] for seeds, rate in expected]


@pytest.mark.parametrize(
    ("settings", "preset", "expected"),
    [
        ({}, "quick", "orthobench sweep adding --models scornn --preset quick --seeds 4"),
        ({}, "paper", "orthobench sweep adding --models scornn --seeds 4"),
        (
            {"hidden_size": "7"},
            "quick",
            "orthobench sweep adding --models scornn --preset quick -s hidden_size=7 --seeds 4",
        ),
    ],
)
def test_command_for_more_seeds_is_short(tmp_path, settings, preset, expected):
    config = resolve(Catalog(), "adding", "scornn", settings, preset)
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        run = store.start(run_record(config.spec, preset=None), {})
        assert command_of(Location("r.db"), run, "4") == expected
        own = store.start(run_record(config.with_seed(1).spec, preset="paper"), {})  # although another one is shorter
        assert "--preset" not in command_of(Location("r.db"), own, "4")
        stale = store.start(run_record(replace(config.spec, model_version="0")), {})  # no model has it
        assert command_of(Location("r.db"), stale, "4").count(" -s ") > 10


def test_interval_of_the_difference_is_printed(clear):
    first, second = ([offset + seed / 100 for seed in range(3)] for offset in (0.1, 0.5))
    welch = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    interval = f"-0.4 [{welch.low:.3g}, {welch.high:.3g}]"
    assert (
        f"difference of the means of finished runs {interval} (95 % interval)"
        in clear("compare", "model=rnn", "model=lstm").out
    )


def test_unpairable_runs_are_reported(swept, tiny_options):
    outcome = swept("compare", "model=rnn,seed=0", "model=lstm,seed=0", "--paired")
    assert (outcome.code, "1 common seed:" in outcome.err) == (2, True)
    swept("run", "adding", "rnn", *tiny_options, "-s", "learning_rate=0.0007")
    outcome = swept("compare", "model=rnn", "model=lstm", "--paired")
    assert (outcome.code, "'model=rnn' has several runs of seed 0" in outcome.err) == (2, True)


def test_mixed_back_ends_are_reported(swept, tmp_path):
    with open_store(str(tmp_path / "results.db")) as store:
        store.update(store.runs(model="rnn")[0].id, {"backend": "reference"})
    (contrast,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    assert contrast["caution"] == "'model=rnn' pools runs of different back ends"


def test_several_comparisons_are_adjusted_and_name_their_runs(swept):
    key = json.loads(swept("ls", "--json").out)[0]["run"]
    contrasts = json.loads(swept("compare", "model=rnn", "model=lstm", f"key={key}", "seed=0", "--json").out)
    assert [contrast["paired"] for contrast in contrasts] == [False, False, False]
    p = contrasts[0]["result"]["p"]
    assert contrasts[0]["result"]["p_holm"] == min(1, 2 * p)  # two tests, not three
    assert "result" not in contrasts[1]
    assert len(contrasts[1]["runs"][1]) == 1
    assert "too few finished or diverged runs" in swept("compare", key[:8], "model=lstm,seed=1").out


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
def test_invalid_selection_names_the_fix(swept, selections, message):
    outcome = swept("compare", *selections)
    assert outcome.code == 2
    assert message in outcome.err


def test_comparison_across_tasks_warns(swept, tiny_options):
    options = [option if option != "sequence_length=10" else "sequence_length=12" for option in tiny_options]
    swept("sweep", "adding", "--models", "rnn", "--seeds", "3", *options)
    text = swept("compare", "model=rnn,sequence_length=10", "model=rnn,sequence_length=12").out
    assert "the numbers are of different tasks" in text


def test_different_metrics_are_refused_with_the_fix(swept, tiny_options):
    swept("run", "copying", "rnn", *tiny_options)
    refused = swept("compare", "model=rnn", "seed=0")
    assert refused.code == 2
    assert "different metrics: cross_entropy, mse; narrow both to a task: task=adding, task=copying" in refused.err


def test_mixed_settings_warn_in_any_notation(swept, tiny_options):
    assert not json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)[0]["caution"]
    swept("run", "adding", "rnn", *tiny_options, "-s", "learning_rate=0.0007")
    (mixed,) = json.loads(swept("compare", "model=rnn", "model=lstm", "--json").out)
    assert mixed["settings"]["learning_rate"] == [[0.001, 0.0007], [0.001]]
    assert mixed["caution"] == "'model=rnn' mixes settings of models or training: narrow it by key=value"
    (narrowed,) = json.loads(swept("compare", "model=rnn,learning_rate=7e-4", "model=lstm", "--json").out)
    assert not narrowed["caution"]
    assert len(narrowed["runs"][0]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("test", [compare_paired, compare_unpaired])
def test_memory_of_a_test_does_not_grow_with_the_runs(test):
    """Of all draws at once, 2,000 values a side would take a gigabyte, and of all pairs 32 MB."""
    first, second = np.random.default_rng(0).normal(size=(2, 2000))
    test(first[:20], second[:20])  # the modules are loaded
    tracemalloc.start()
    try:
        test(first, second)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6


def test_draws_in_parts_equal_all_draws_at_once(monkeypatch):
    first, second = np.random.default_rng(0).normal(size=(2, 30))
    whole = [test(first, second).p for test in (compare_paired, compare_unpaired)]
    monkeypatch.setattr(statistics, "VALUES_AT_ONCE", 1000)
    assert [test(first, second).p for test in (compare_paired, compare_unpaired)] == whole


def test_comparison_reads_each_run_once(tmp_path, monkeypatch):
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        for number, model in enumerate(("rnn", "rnn", "lstm", "lstm", "gru", "gru")):
            run = store.start(run_record(model=model, seed=number % 2), {})
            rows = [MetricRow(split, name, 1, 1, 0.5) for split in ("train", "test") for name in ("mse", "accuracy")]
            store.log(run.id, rows, [], {"status": Status.FINISHED, "iterations": 1})
        read = {"runs": [], "metric_columns": []}
        for owner, name in ((store, "runs"), (compare, "metric_columns")):
            method = getattr(owner, name)

            def counted(*arguments, method=method, results=read[name], **options):
                results.append(method(*arguments, **options))
                return results[-1]

            monkeypatch.setattr(owner, name, counted)
        contrasts(store, ["model=rnn", "model=lstm", "model=gru"], {}, lambda run: run.status)
    assert [[run.model for run in runs] for runs in read["runs"]] == [["rnn"] * 2, ["lstm"] * 2, ["gru"] * 2]
    [columns] = read["metric_columns"]
    assert (len(columns.value), columns.splits, columns.names) == (6, ["test"], ["mse"])
