"""The quick presets learn something: far above chance in about a minute each."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "task", "options", "at_least"),
    [
        ("mnist", "mnist", (), 0.6),
        ("fashion_mnist", "mnist", ("-s", "dataset=fashion"), 0.6),
        ("cifar10", "cifar10", (), 0.22),
    ],
    ids=["mnist", "fashion", "cifar10"],
)
def test_quick_preset_learns(data, task, options, at_least, orthobench, real_data):
    real_data(data)
    assert orthobench("run", task, "scornn", "--preset", "quick", *options).code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert run["final"] > at_least  # chance is 0.1135 and 0.1


@pytest.mark.slow
def test_quick_preset_learns_language(orthobench, real_data):
    real_data("ptb")
    assert orthobench("run", "ptb", "scornn", "--preset", "quick").code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert run["final"] < 3.0  # characters by their frequency alone take 4.34 bits


@pytest.mark.slow
def test_quick_preset_predicts_speech(orthobench, real_data):
    real_data("timit_sample")
    assert orthobench("run", "timit", "scornn", "--preset", "quick").code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert run["final"] < 45  # the mean frame scores 65.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "at_least"),
    [
        ("formal_language", 0.99),
        ("group_word", 0.99),
        ("mqar", 0.9),
        ("xor_stream", 0.99),
        ("selective_copying", 0.99),
        ("memorization", 0.99),
    ],
)
def test_quick_preset_of_state_tracking_is_solved_by_an_lstm(task, at_least, orthobench):
    assert orthobench("run", task, "lstm", "--preset", "quick").code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert run["final"] > at_least  # chance is 1/2, less than 0.001, 1/16, 1/2, 1/4 and 1/32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "model", "options", "at_least"),
    [
        ("recall", "mamba", (), 0.95),  # chance is 1/4, and the LSTM ends at 0.6
        ("context_free", "lstm", ("-s", "depth=3", "-s", "test_depth=3", "-s", "hidden_size=32"), 0.95),
        ("context_free", "stack_lstm", ("-s", "depth=3", "-s", "test_depth=3"), 0.95),
        ("context_free", "stack_lstm", ("-s", "language=reverse_string"), 0.95),
    ],
    ids=["recall", "bounded brackets", "bounded brackets with a stack", "reversed strings with a stack"],
)
def test_quick_preset_is_solved_by_a_model_that_can(task, model, options, at_least, orthobench):
    assert orthobench("run", task, model, "--preset", "quick", *options).code == 0
    (run,) = json.loads(orthobench("ls", "--json").out)
    assert run["final"] > at_least
