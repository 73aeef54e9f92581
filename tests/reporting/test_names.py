"""Names of models for people: titles, the user's labels, and the names that stay as they are stored."""

from __future__ import annotations

import pytest
from support.databases import experiment

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.metric import notation
from orthobench.reporting.page.names import check_labels, name_of, named


def test_model_has_its_label_else_its_title_else_its_stored_name():
    assert [name_of(model, {"gru": "Ours"}) for model in ("gru", "full_urnn", "cell.py:Cell")] == [
        "Ours",
        "Full uRNN",
        "cell.py:Cell",
    ]


def test_settings_in_a_label_stay(database):
    rnn = experiment("rnn", "last", [])
    database.run(rnn, 0, test=[0.5, 0.1])
    database.run(rnn, 0, test=[0.5, 0.2], learning_rate=0.5)
    (condition,) = collect(database.store)
    before = [variant.label for variant in condition.variants]
    assert all(label.startswith("rnn learning_rate=") for label in before)
    after = [variant.label for variant in named(condition, {"rnn": "Ours"}).variants]
    assert after == [label.replace("rnn ", "Ours ") for label in before]


@pytest.mark.parametrize(
    ("labels", "words"),
    [({"gru": "LSTM"}, "is the name of lstm, too"), ({"./cell.py:Cell": "Ours"}, "has no run of it; it has gru, lstm")],
)
def test_label_of_another_model_or_of_none_is_refused(labels, words):
    with pytest.raises(UsageError, match=words):
        check_labels(labels, {"lstm", "gru"})


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("I_plus_eps_W", "I + εW"),
        ("2.I_plus_eps_W", "I + εW of layer 2"),
        ("orthogonality/I_plus_eps_W", "orthogonality/I + εW"),
        ("orthogonality/1.W_L", "orthogonality/W_L of layer 1"),
        ("cells.0.weight_hh", "cells.0.weight_hh"),
        ("loss", "loss"),
    ],
)
def test_matrix_has_the_name_that_papers_use(stored, shown):
    assert notation(stored) == shown
