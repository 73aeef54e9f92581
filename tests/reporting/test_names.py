"""Names for people: of models, of their variants, and of settings in words."""

from __future__ import annotations

import re

import pytest
from support.databases import experiment

from orthobench.analysis.conditions import collect, name_of_task
from orthobench.errors import UsageError
from orthobench.metric import notation
from orthobench.papers import Experiment, papers
from orthobench.reporting.account.names import check_labels, in_words, name_of, named, panel_of
from orthobench.spec.index import built_in


def test_model_has_its_label_else_its_title_else_its_stored_name():
    assert [name_of(model, {"gru": "Ours"}) for model in ("gru", "full_urnn", "cell.py:Cell")] == [
        "Ours",
        "Full uRNN",
        "cell.py:Cell",
    ]


@pytest.mark.parametrize(
    ("task", "name"),
    [("mnist", "MNIST"), ("temporal_order", "temporal order"), ("recall", "in-context recall"), ("mine", "mine")],
)
def test_task_has_its_short_name_else_its_title_else_its_stored_name(monkeypatch, task, name):
    known = {"plugins": {**built_in()["plugins"], "task/temporal_order": {"title": "temporal order"}}}
    monkeypatch.setattr("orthobench.analysis.conditions.built_in", lambda: known)
    assert name_of_task(task) == name
    assert panel_of(Experiment(artifact="figure 1", task=task, model="rnn")) == name


def test_settings_in_a_label_are_in_words(database):
    rnn = experiment("rnn", "last", [])
    database.run(rnn, 0, test=[0.5, 0.1])
    database.run(rnn, 0, test=[0.5, 0.2], learning_rate=0.5)
    (condition,) = collect(database.store)
    before = [variant.label for variant in condition.variants]
    assert all(label.startswith("rnn learning_rate=") for label in before)
    after = [variant.label for variant in named(condition, {"rnn": "Ours"}).variants]
    assert after == [label.replace("rnn learning_rate=", "Ours, learning rate ") for label in before]


@pytest.mark.parametrize(
    ("name", "value", "task", "words"),
    [
        ("language", "mod_arith", "formal_language", "modular arithmetic"),
        ("longest", 10, "formal_language", "trained up to length 10"),
        ("train_size", 55_000, "mnist", "55,000 training images"),
        ("train_size", "1000", "adding", "1,000 training sequences"),
        ("validation_size", None, "adding", "no validation sequences"),
        ("longer_tests", True, "adding", "scored at T"),
        ("longer_tests", None, "adding", "tests at T alone"),
        ("permuted", False, "mnist", "not permuted"),
        ("negative_eigenvalues", "true", "", "negative eigenvalues"),
        ("negative_eigenvalues", "false", "", "no negative eigenvalues"),
        ("clip_value", "none", "", "no clip value"),
        ("layout", "exprnn", "copying", "layout of EXPRNN"),
        ("sequence_length", 200, "adding", "T = 200"),
        ("epochs", 4, "", "4 epochs"),
        ("data_seed", "program", "xor_stream", "data seed program"),
        ("setting_of_a_plugin", "some value", "", "setting of a plugin some value"),
    ],
)
def test_setting_is_in_words(name, value, task, words):
    assert in_words(name, value, task) == words


def test_trials_of_a_search_add_no_settings_to_the_name_of_the_tuned_model(database):
    rnn = experiment("rnn", "last", [])
    database.run(rnn, 0, test=[0.5, 0.1], learning_rate=0.5)
    for rate in (0.1, 0.5):
        run = database.run(rnn, 0, test=[0.5, 0.1], learning_rate=rate, judged_by="validation_only")
        assert run.is_trial
    (condition,) = collect(database.store)
    labels = sorted(variant.label for variant in named(condition).variants)
    assert labels[0] == "RNN"
    assert len(set(labels)) == 3
    assert all("judged by validation only" in label for label in labels[1:])


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.key)
def test_every_paper_names_models_for_people(paper):
    """One spelling for a model everywhere: a label does not begin with the stored name, unless that is the title."""
    stored = [each.label for each in paper.experiments() if re.match(rf"{each.model}\b", each.label)]
    unnamed = [
        label for label in stored if not any(label.startswith(name_of(part)) for part in re.findall(r"^\w+", label))
    ]
    assert unnamed == [], f"add the names of these models to `names` in orthobench/papers/{paper.key}.toml"


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
