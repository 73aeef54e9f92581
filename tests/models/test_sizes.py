"""Parameter counts of models, held against the papers'."""

import pytest
import torch
from support.models import (
    make,
)

from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve


@pytest.mark.parametrize(
    ("model", "n", "m", "p", "exact"),
    [
        ("scornn", 170, 1, 10, 16_415),
        ("scornn", 360, 1, 10, 68_950),
        ("scornn", 512, 1, 10, 136_970),
        ("scornn", 170, 2, 1, 15_046),
        ("scornn", 190, 10, 9, 21_764),
        ("scornn", 224, 129, 129, 83_121),
        ("lstm", 128, 1, 10, 67_850),
        ("lstm", 256, 1, 10, 266_762),
        ("lstm", 60, 2, 1, 15_181),
        ("lstm", 68, 10, 9, 22_109),
        ("lstm", 158, 129, 129, 202_527),
        ("rnn", 116, 1, 10, 14_858),
        ("rnn", 360, 1, 10, 133_930),
        ("gru", 80, 10, 9, 3 * (800 + 6400 + 80) + 729),
        ("exprnn", 176, 10, 9, 18_929),
        ("antisymmetric", 128, 1, 10, 9_674),
        ("antisymmetric", 256, 3, 10, 36_234),
        ("antisymmetric", 256, 96, 10, 60_042),
        ("antisymmetric_gated", 128, 1, 10, 9_930),
        ("antisymmetric_gated", 256, 3, 10, 37_258),
        ("ablation", 196, 3, 10, 41_954),
        ("ablation", 196, 96, 10, 78_410),
    ],
)
def test_parameter_counts_match_the_papers(model, n, m, p, exact):
    assert make(model, inputs=m, outputs=p, hidden_size=n).parameter_count() == exact


@pytest.mark.parametrize(
    ("model", "m", "p", "settings", "exact"),
    [
        ("ornn", 1, 10, {"hidden_size": 256, "reflections": 32}, 11_034),
        ("ornn", 1, 10, {"hidden_size": 256, "reflections": 16}, 7_314),
        ("ornn", 2, 1, {"hidden_size": 128, "reflections": 16}, 2_569),
        ("ornn", 49, 49, {"hidden_size": 512, "reflections": 512}, 182_577),
        ("enrnn", 2, 1, {"hidden_size": 160, "short_size": 64}, 15_441),
        ("enrnn", 10, 9, {"hidden_size": 192, "short_size": 20}, 22_395),
        ("enrnn", 129, 129, {"hidden_size": 468, "short_size": 94, "coupling": False}, 199_928),
    ],
)
def test_parameter_counts_of_settings_match_the_papers(model, m, p, settings, exact):
    assert make(model, inputs=m, outputs=p, **settings).parameter_count() == exact


@pytest.mark.parametrize(("task", "model", "printed"), [("adding", "scornn", 15), ("copying", "scornn", 22)])
def test_defaults_have_the_published_size(task, model, printed):
    config = resolve(Catalog(), task, model, {"train_size": "20", "test_size": "20", "batch_size": "20"})
    signature = config.task_class(config.task_settings, 0, torch.device("cpu")).signature
    network = config.model_class(config.model_settings, signature, torch.Generator())
    assert round(network.parameter_count() / 1000) == printed
