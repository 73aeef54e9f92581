"""Every model learns what the papers say it does: below the task's baseline in well under a minute, small."""

from __future__ import annotations

import pytest

from orthobench.plugins import Catalog
from orthobench.store import open_store

SMALL = {
    "copying": {"sequence_length": 20, "train_size": 2_000, "test_size": 200, "batch_size": 20, "epochs": 15},
    "adding": {"sequence_length": 30, "train_size": 5_000, "test_size": 500, "batch_size": 50, "epochs": 20},
}
LEARNS: dict[str, tuple[str, float, dict[str, object]]] = {
    "scornn": ("copying", 0.2, {}),
    "scurnn": ("copying", 0.2, {}),
    "urnn": ("copying", 0.2, {}),
    "full_urnn": ("copying", 0.2, {}),
    "kru": ("copying", 0.2, {}),
    "eurnn": ("copying", 0.2, {}),
    "goru": ("copying", 0.9, {}),
    "exprnn": ("copying", 0.5, {}),
    "dtriv": ("copying", 0.2, {}),
    "enrnn": ("copying", 0.2, {}),
    "nnrnn": ("copying", 0.2, {}),
    "soft_orthogonal": (
        "copying",
        0.2,
        {"activation": "identity", "learning_rate": 1e-3, "recurrent_learning_rate": 1e-4},
    ),
    "ornn": ("adding", 0.2, {"learning_rate": 1e-2}),
    "spectral_rnn": ("adding", 0.2, {}),
    "lstm": ("adding", 0.2, {}),
    "gru": ("adding", 0.2, {}),
    "rnn": ("adding", 0.7, {"learning_rate": 1e-4, "sequence_length": 15}),
    "irnn": ("adding", 0.4, {"optimizer": "adam", "learning_rate": 1e-4, "clip_value": 1.0}),
    "antisymmetric": ("adding", 0.9, {"step_size": 0.1}),
    "antisymmetric_gated": ("adding", 0.3, {"step_size": 0.1}),
    "ablation": ("adding", 0.4, {"step_size": 0.1}),
    "cornn": ("adding", 0.3, {"learning_rate": 2e-2, "step_size": 0.06, "frequency": 66, "damping": 15}),
    "lem": ("adding", 0.2, {}),
    "lipschitz_rnn": ("adding", 0.4, {}),
    "lru": ("adding", 0.2, {}),
    "wrnn": ("adding", 0.3, {"channels": 4, "hidden_size": 32, "learning_rate": 1e-3}),
    "ind_rnn": ("adding", 0.2, {"learning_rate": 2e-3, "layers": 2}),  # units of one layer never see each other
    "linoss": ("copying", 0.8, {"discretization": "IMEX"}),  # a linear layer
    "min_gru": ("adding", 0.2, {}),
    "min_lstm": ("adding", 0.2, {}),
    "slstm": ("adding", 0.2, {}),
    "mlstm": ("adding", 0.2, {}),
    "deltanet": ("adding", 0.1, {}),
    "deltaproduct": ("adding", 0.2, {"epochs": 10}),
    "gated_deltanet": ("adding", 0.2, {}),
    "mamba": ("adding", 0.2, {}),
}
"""By model the task, the share of the baseline that it comes below, and settings other than its own."""


def test_every_model_has_a_learning_test():
    assert LEARNS.keys() == {entry.name for entry in Catalog() if entry.kind == "model"}


@pytest.mark.slow
@pytest.mark.parametrize("model", LEARNS)
def test_model_beats_the_baseline(model, orthobench):
    task, share, settings = LEARNS[model]
    overrides = {"hidden_size": 64, "evaluate_every": 500, **SMALL[task], **settings}
    options = [part for name, value in overrides.items() for part in ("-s", f"{name}={value}")]
    outcome = orthobench("run", task, model, *options)
    assert outcome.code == 0, outcome.err
    with open_store("results.db") as store:
        (run,) = store.runs()
    assert run.final_value < share * run.baselines[run.metric]
