"""Tags: names for runs, which change nothing of them, and by which runs are found again."""

from __future__ import annotations

import json

import pytest

import orthobench as ob

MARKUP = "[red]<b>a</b>"


def tags(orthobench, *arguments: str) -> dict[str, list[str]]:
    return {run["model"]: run["tags"] for run in json.loads(orthobench("ls", "--json", *arguments).out)}


def test_tag_is_added_to_a_finished_run_without_training(orthobench, tiny_options):
    first = orthobench("run", "adding", "rnn", *tiny_options)
    again = orthobench("run", "adding", "rnn", *tiny_options, "--tag", "night", "--tag", MARKUP)
    assert (again.out, again.err) == (first.out, "")
    orthobench("run", "adding", "lstm", *tiny_options, "--tag", "night")
    assert tags(orthobench) == {"rnn": [MARKUP, "night"], "lstm": ["night"]}
    assert tags(orthobench, "--tag", MARKUP) == {"rnn": [MARKUP, "night"]}
    assert orthobench("ls", "--tag", "other").out == f"no run has tag=other; runs have tag {MARKUP}, night\n"

    key = first.out.split()[1]
    assert f"{MARKUP}, night" in orthobench("ls").out
    assert f"{MARKUP}, night" in orthobench("show", key).out
    assert json.loads(orthobench("show", key, "--json").out)["tags"] == [MARKUP, "night"]


def test_sweep_tags_found_and_trained_runs(orthobench, tiny_options):
    sweep = ("sweep", "adding", *tiny_options, "--models")
    orthobench(*sweep, "rnn")
    orthobench(*sweep, "rnn,lstm", "--tag", "both")
    orthobench(*sweep, "rnn,lstm", "--tag", "later", "--dry-run")
    assert tags(orthobench) == {"rnn": ["both"], "lstm": ["both"]}
    compared = json.loads(orthobench("compare", "tag=both,model=rnn", "tag=both,model=lstm", "--json").out)
    assert [len(keys) for keys in compared[0]["runs"]] == [1, 1]


@pytest.mark.parametrize("name", ["", " ", "a,b", "a\nb", "x" * 65])
def test_invalid_tag_is_refused(orthobench, tiny_options, tmp_path, name):
    outcome = orthobench("run", "adding", "rnn", *tiny_options, "--tag", name)
    assert outcome.code == 2
    assert "a tag is a short text" in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["none", "None", " null "])
def test_reserved_tag_none_is_refused(orthobench, tiny_options, tmp_path, name):
    outcome = orthobench("run", "adding", "rnn", *tiny_options, "--tag", name)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "this word selects runs without a tag; choose another tag" in outcome.err
    with pytest.raises(ob.UsageError, match="other than none, which selects runs without a tag"):
        ob.RunOptions(tags=("night", name))
    assert list(tmp_path.iterdir()) == []


def test_tags_that_differ_in_case_are_different(orthobench, tiny_options):
    for model, tag in (("rnn", "Thesis"), ("lstm", "thesis"), ("gru", "THESIS")):
        assert orthobench("run", "adding", model, *tiny_options, "--tag", tag).code == 0
    assert tags(orthobench, "--tag", "Thesis") == {"rnn": ["Thesis"]}
    assert orthobench("delete", "--tag", "thesis", "--yes").code == 0
    assert tags(orthobench) == {"rnn": ["Thesis"], "gru": ["THESIS"]}


def test_control_characters_of_a_tag_are_not_printed(orthobench, tiny_options):
    from orthobench.store import open_store

    orthobench("run", "adding", "rnn", *tiny_options)
    with open_store("results.db") as store:
        store.tag([store.runs()[0].key], ["\x1b[31mred"])
    assert "?[31mred" in orthobench("ls").out
