"""Files of papers: a faulty one is one line that names file and field, and their order is always the same."""

from __future__ import annotations

import pytest

from orthobench.errors import UsageError
from orthobench.papers import papers, read_paper

PAPER = """key = "{key}"
title = "A Cell"
subject = "cell"
authors = "A. Author"
venue = "ICLR"
year = 2018
priority = 70

[[experiment]]
artifact = "table 1"
task = "adding"
model = "rnn"
printed = [{{ metric = "mse", value = 0.010 }}]
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function that writes the only papers that there are, by their keys."""
    monkeypatch.setattr("orthobench.papers.reading.files", lambda package: tmp_path)

    def write_papers(*keys: str, change=lambda text: text) -> None:
        for key in keys:
            (tmp_path / f"{key}.toml").write_text(change(PAPER.format(key=key)))

    return write_papers


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('venue = "ICLR"\n', "", "own2018.toml: venue: Field required"),
        ("priority = 70", 'priority = "first"', "own2018.toml: priority: Input should be a valid integer"),
        ('task = "adding"\n', "", "own2018.toml: experiment 1, task: Field required"),
        ("value = 0.010", "valu = 0.010", "own2018.toml: experiment 1, printed 1, valu: Extra inputs"),
        ("value = 0.010", "lost = false", "own2018.toml: experiment 1, printed 1: a printed result has a value"),
        ("year = 2018", "year =", "own2018.toml is not TOML: Invalid value (at line 6"),
    ],
)
def test_faulty_file_is_one_line_with_file_and_field(write, old, new, line):
    write("own2018", change=lambda text: text.replace(old, new))
    with pytest.raises(UsageError) as caught:
        papers.__wrapped__()
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_all_missing_fields_are_named(write):
    write("own2018", change=lambda text: text.replace('subject = "cell"\n', "").replace("priority = 70\n", ""))
    with pytest.raises(UsageError, match=r"^own2018\.toml: subject: Field required; priority: Field required$"):
        papers.__wrapped__()


def test_papers_of_equal_priority_are_in_the_order_of_their_keys(write, tmp_path, monkeypatch):
    write("c2018", "a2018", "b2018")
    for order in (sorted, lambda found: sorted(found, reverse=True)):
        monkeypatch.setattr(type(tmp_path), "iterdir", lambda folder, order=order: iter(order(folder.glob("*"))))
        assert [paper.key for paper in papers.__wrapped__()] == ["a2018", "b2018", "c2018"]


def test_value_keeps_its_printed_digits(write, tmp_path):
    write("own2018")
    (experiment,) = read_paper(tmp_path / "own2018.toml").experiments()
    assert experiment.printed[0].text == "0.010"
