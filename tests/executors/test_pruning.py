"""The median rule, against optuna's pruner; and by which split a run is judged."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from orthobench.planning.objective import MIN_FINISHED, MedianRule, best_so_far, objective_values

NAN = float("nan")


@pytest.mark.parametrize("goal", ["min", "max"])
def test_median_rule_matches_optuna(goal):
    optuna = pytest.importorskip("optuna")
    from optuna.trial import TrialState, create_trial

    draw = random.Random(0)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=MIN_FINISHED, n_warmup_steps=0)
    verdicts = []
    for _ in range(300):
        runs = [[draw.random() for _ in range(draw.randint(1, 6))] for _ in range(draw.randint(0, 9))]
        judges = [best_so_far(values, goal) for values in runs]
        values = [draw.random() for _ in range(draw.randint(1, 6))]
        study = optuna.create_study(direction="minimize" if goal == "min" else "maximize")
        for bests in judges:
            study.add_trial(create_trial(value=bests[-1], intermediate_values=dict(enumerate(bests))))
        trial = create_trial(state=TrialState.RUNNING, intermediate_values=dict(enumerate(values)))
        verdicts.append(MedianRule(tuple(map(tuple, judges)), goal).should_prune(values))
        assert verdicts[-1] == pruner.prune(study, trial)
    assert 50 < sum(verdicts) < 250


def test_run_without_a_finite_value_is_not_pruned():
    """It diverges, which is a result."""
    assert not MedianRule(((1.0,),) * MIN_FINISHED, "min").should_prune([])


def test_validation_precedes_test():
    def rows(*listed):
        return [SimpleNamespace(split=split, value=value) for split, value in listed]

    both = rows(("test", 1.0), ("valid", 2.0), ("test", 3.0), ("valid", NAN), ("valid", 4.0))
    assert objective_values(both) == ("valid", [2.0, 4.0])
    assert objective_values(rows(("test", 1.0), ("test", None), ("test", 3.0))) == ("test", [1.0, 3.0])
    assert objective_values([]) == ("test", [])
