"""The table of printed numbers by paper adds up, and its hours follow from the stored runs."""

from __future__ import annotations

from collections import Counter

import pytest
from support.databases import RunDatabase, experiment, paper

from orthobench.analysis.conditions import collect
from orthobench.papers import Printed
from orthobench.plugins import Catalog
from orthobench.reporting.account.printed_numbers import KINDS, explanation, printed_numbers
from orthobench.reporting.tables.printed_numbers import HEADER, numbers_table
from orthobench.reporting.tables.reproduction import reproduction
from orthobench.spec.resolve import resolve
from orthobench.store import open_store


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        yield RunDatabase(store)


def specs(whole):
    catalog = Catalog()
    resolved = {
        each.identity: resolve(catalog, each.task, each.model, {}, experiment=each) for each in whole.experiments()
    }
    return {identity: vars(config.spec) for identity, config in resolved.items()}


def row(database, whole) -> dict[str, str]:
    counted = printed_numbers([database.view(whole)], collect(database.store), specs(whole))
    first, total = numbers_table(counted).rows
    assert first[1:] == total[1:]
    return dict(zip(HEADER, first, strict=True))


def number(model, value=0.05, **changes):
    return experiment(model, "last", [Printed(metric="mse", value=value)]).model_copy(update=changes)


def test_columns_add_up_to_the_printed_numbers(database):
    agrees, wide, few, own, open_one = (
        number(model, value) for model, value in zip(("rnn", "lstm", "gru", "irnn", "goru"), (0.05,) * 5, strict=True)
    )
    own = own.model_copy(update={"own_settings": True})
    for seed, value in enumerate((0.05, 0.051, 0.05)):
        database.run(agrees, seed, test=[1.0, value])
        database.run(own, seed, test=[1.0, value])
        database.run(wide, seed, test=[1.0, 0.001 * 10**seed])
    database.run(few, 0, test=[1.0, 0.05])
    table = row(database, paper(agrees, wide, few, own, open_one))
    shown = {name: count for name, count in table.items() if count not in ("0", "")}
    assert shown.pop("open: hours on a CPU core")
    assert shown == {
        "paper": "cells 2000",
        "printed": "5",
        "measured": "4",
        "agrees": "1",
        "too wide": "1",
        "undecided": "1",
        "settings not published": "1",
        "open": "1",
        "open: hours on a GPU": "unknown",
    }
    assert int(table["measured"]) == sum(int(table[kind]) for kind in KINDS)


def test_hours_are_those_of_three_seeds_of_each_open_experiment(database):
    """A stored run takes 120 seconds for 40 iterations, 10 an epoch; 3 epochs take 90 s, three times."""
    near = number("rnn")
    database.run(near, 0, test=[1.0, 0.05], learning_rate=0.5)
    assert row(database, paper(near))["open: hours on a CPU core"] == f"{3 * 30 * 120 / 40 / 3600:.2g}"


@pytest.mark.parametrize(("hidden_size", "seconds"), [(1, None), (17, None), (9, 30 * 120 / 40)])
def test_hours_of_another_size_or_model_are_unknown(database, hidden_size, seconds):
    """Nobody knows how a run of other sizes or of another model scales to the open experiments, which have 8 units."""
    database.run(number("rnn"), 0, test=[1.0, 0.05], hidden_size=hidden_size)
    table = row(database, paper(number("rnn"), number("lstm")))
    shown = "unknown" if seconds is None else f"{3 * seconds / 3600:.2g} (1 unknown)"
    assert table["open: hours on a CPU core"] == shown


def test_page_of_tiny_runs_names_no_hours(after, tmp_path, orthobench, tiny_options):
    after(("run", "adding", "rnn", *tiny_options), ("run", "copying", "lstm", *tiny_options))
    assert orthobench("report", "--html", "-o", "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "(three seeds, hours of one CPU core: unknown)" in page


def test_data_without_a_run_are_unknown_and_licensed_ones_named(database):
    speech = number("rnn").model_copy(update={"task": "timit", "task_settings": {"dataset": "timit"}})
    database.run(number("rnn"), 0, test=[1.0, 0.05])
    whole = paper(speech)
    counted = printed_numbers([database.view(whole)], collect(database.store), specs(whole))
    assert counted[0].counts == Counter(open=1)
    assert str(counted[0].hours["cpu"]) == "unknown"
    assert "The numbers on TIMIT, whose corpus needs a licence" in explanation(counted)


def test_account_ends_with_the_table(database):
    whole = paper(number("rnn"))
    text = reproduction(collect(database.store), [database.view(whole)], [])
    _, _, table = text.partition("## Printed numbers by paper")
    assert "| cells 2000 | 1 | 0 |" in table
    assert "licence" not in table
