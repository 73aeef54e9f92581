"""The author's text about the reproduction: its numbers are placeholders, which follow the database and the papers."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes
from support.claims import stated
from support.databases import RunDatabase, experiment, paper

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.papers import Aggregation, Printed
from orthobench.reporting.page.commentary import render
from orthobench.reporting.page.facts import SECTIONS, Facts, fill_in
from orthobench.store import open_store

COMMENTARY = Path(__file__).parents[2] / "reports" / "commentary.md"

LITERALS = {
    r"`[^`]*`": "code: settings, files and tags as the reader types them",
    r"\b(?:table|figure) \d+\b": "a place in a paper",
    r"\bD-\d+\b": "an entry of docs/discrepancies.md",
    r"\b[A-Z]\d+\b": "a group, such as S3",
}
"""What may have digits in the text, because it is a name and no fact of the database, with the reason."""
COUNTS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million dozen twice thrice"
)
NUMBER = re.compile(
    rf"(?i)\d+(?:[.,]\d+)*|\b(?:{'|'.join(COUNTS.split())})(?:s|th|ths)?\b|\bone (?:seed|run|model|pair)\b"
)


def literal_numbers(source: str) -> list[str]:
    """Return the numbers of a text that are not filled in: in its words, in outputs, and in what is calculated."""
    tree = jinja2.Environment().parse(source)
    words = "".join(part.data if isinstance(part, nodes.TemplateData) else "{}" for part in outputs(tree))
    for pattern in LITERALS:
        words = re.sub(pattern, "", words)
    constants = [
        str(node.value)
        for node in tree.find_all(nodes.Const)
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    ]
    shown = [part.value for part in outputs(tree) if isinstance(part, nodes.Const)]
    return NUMBER.findall(words) + constants + [str(value) for value in shown if NUMBER.search(str(value))]


def outputs(tree: nodes.Template) -> list[nodes.Expr]:
    return [part for output in tree.find_all(nodes.Output) for part in output.nodes]


def test_every_number_of_the_account_is_a_placeholder():
    assert literal_numbers(COMMENTARY.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It held with 3 seeds.", ["3"]),
        ("It held with three seeds.", ["three"]),
        ("Ten of one run", ["Ten", "one run"]),
        ("It ends at 8e-5, at 0.97.", ["8", "5", "0.97"]),
        ("{{ 3 }} seeds", ["3", "3"]),
        ("{{ '0.97' }}", ["0.97"]),
        ("{{ claims.decided + 1 }}", ["1"]),
        ("T = 1000", ["1000"]),
        ("{{ claims.decided }} in table 1 of S3 (D-28, `n=170`), the first one", []),
    ],
)
def test_literal_number_is_found(text, found):
    assert literal_numbers(text) == found


def test_literal_number_in_the_account_is_found():
    text = COMMENTARY.read_text("utf-8")
    placeholder = '{{ number("helfrich2018", "table 1", "scoRNN, n = 170", "permuted MNIST").seeds }}'
    assert placeholder in text
    assert literal_numbers(text.replace(placeholder, "5 seeds")) == ["5"]


@pytest.fixture
def database(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        made = RunDatabase(store)
        made.baseline = 2.0
        yield made


TEXT = """
{% call remark(claim("k", "figure 1", "it falls")) %}
Because of its rate, {{ setting("k", "table 1", "rnn", "train_size") }} sequences.
{% endcall %}
Held:
{{ remarks("held") }}
Not:
{{ remarks("did not hold") }}
Numbers: {{ number("k", "table 1", "rnn, n = 8", "mse").measured }} for
{{ number("k", "table 1", "rnn, n = 8", "mse").printed }} with {{ number("k", "table 1", "rnn, n = 8", "mse").seeds }}:
{{ number("k", "table 1", "rnn, n = 8", "mse").verdict }}; {{ numbers.agree }} of {{ numbers.compared }};
{{ claims.confirmed }} of {{ claims.decided }}; {{ runs("model=rnn").runs }} of {{ runs().models }} end at
{{ runs("model=rnn").end }}, the best {{ runs().winner }}
"""


def whole():
    own = Aggregation(over="mean", seeds=1)
    number = experiment("rnn", "last", [Printed(metric="mse", value=0.05, aggregation=own)])
    curve = experiment("lstm", "curve", [Printed(metric="mse", outcome="falls")], "figure 1")
    claim = stated("ends_below", "lstm", text="it falls towards zero", share=0.5)
    return paper(number, curve, artifacts=[{"name": "figure 1", "shows": "learning_curves", "claims": [claim]}])


def account(database, monkeypatch) -> str:
    monkeypatch.setattr("orthobench.reporting.page.facts.find_paper", lambda key: whole())
    return fill_in(TEXT, Facts(collect(database.store), [database.view(whole())]), "text")


def test_text_follows_the_database(database, monkeypatch):
    number, curve = whole().experiments()
    for seed in range(3):
        database.run(number, seed, test=[1.0, 0.05 + 0.001 * seed])
        database.run(curve, seed, test=[1.0, 0.01])
    before = account(database, monkeypatch)
    held, _, not_held = before.partition("Not:")
    assert "* **it falls towards zero** (cells 2000, figure 1): 3 of 3 seeds. Measured: ends at 0.01" in held
    assert "Because of its rate, 40 sequences." in held
    assert "None." in not_held
    assert "0.051 [" in before
    assert "for\n0.05 with 3 seeds:\nwithin the spread of our runs; 1 of 1;\n1 of 1; 3 runs of 2 models" in before
    assert "end at\n0.05 to 0.052, the best `lstm`" in before

    for run in database.store.runs(model="lstm"):
        database.store.delete(run.id)
    for seed in range(3):
        database.run(curve, seed, test=[1.0, 1.5])
    database.run(number, 3, test=[1.0, 0.09])
    after = account(database, monkeypatch)
    held, _, not_held = after.partition("Not:")
    assert "it falls" not in held
    assert "0.09" in not_held


def test_value_at_the_start_of_a_line_begins_no_list():
    facts = Facts([], [])
    text = "held:\n{{ claims.confirmed }}. Or\n1. one\n{{ claims.confirmed }}\n"
    assert fill_in(text, facts, "text") == "held:\n0\\. Or\n1. one\n0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n{{ claim('k', 'figure 1', 'it rises') }}", "text, line 2: unknown claim of k figure 1 'it rises'"),
        ("{{ claim('q', 'figure 1', 'it') }}", "text, line 1: unknown paper in this report 'q': known: k"),
        ("{{ number('k', 'table 2', 'a', 'b') }}", "unknown table or figure of k 'table 2': did you mean table 1?"),
        ("{{ runs('model=gru').end }}", "text, line 1: no run has model=gru; runs have model rnn"),
        ("{{ winner }}", "text, line 1: 'winner' is undefined"),
        ("a\n\n{{ claims.held }}", "text, line 3: 'dict object' has no attribute 'held'"),
        ("{% if %}", "text, line 1: Expected an expression"),
        ("{{ remarks('holds') }}", "text, line 1: unknown section 'holds': did you mean held?"),
        ("{{ ''.__class__.__mro__ }}", "text, line 1: access to attribute '__class__' of 'str' object is unsafe."),
    ],
)
def test_mistake_in_a_placeholder_is_one_line(database, text, message):
    database.run(whole().experiments()[0], 0, test=[1.0, 0.05])
    with pytest.raises(UsageError) as error:
        fill_in(text, Facts(collect(database.store), [database.view(whole())]), "text")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_page_shows_a_remark_next_to_its_claim(database):
    database.run(whole().experiments()[1], 0, test=[1.0, 0.01])
    facts = Facts(collect(database.store), [database.view(whole())])
    source = (
        '{% call remark(claim("k", "figure 1", "it falls")) %}Since *it* learns.{% endcall %}{{ remarks("few seeds") }}'
    )
    commentary = render(source, facts, "text")
    assert commentary.on("it falls towards zero") == ["Since <em>it</em> learns."]
    assert "Since <em>it</em> learns." in commentary.text


def test_every_section_of_the_account_is_shown():
    """A remark must appear wherever its claim's verdict moves."""
    text = COMMENTARY.read_text("utf-8")
    assert [section for section in SECTIONS if f'remarks("{section}")' not in text] == []
