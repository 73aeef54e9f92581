"""Each string's answer by Python's own arithmetic; tokens, lengths and answers of the three programs; the baselines."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve, resolve_again
from orthobench.tasks._draws import Draws
from orthobench.tasks._expressions import MINUS, PLUS, TIMES, value_distributions
from orthobench.tasks._languages import BracketedArithmetic, CycleNavigation, EvenPairs, ModularArithmetic, Parity
from orthobench.tasks.formal_language import PROTOCOLS, FormalLanguage, FormalLanguageSettings

CPU = torch.device("cpu")
ARITHMETIC = "01234+-*()="
LANGUAGES = ["parity", "even_pairs", "cycle_nav", "mod_arith", "mod_arith_brackets"]


def evaluate(language: str, string: str) -> int:
    """The answer as the definition says it. A string is written in 0 and 1, in 0, + and -, or as an expression."""
    match language:
        case "parity":
            return string.count("1") % 2
        case "even_pairs":
            return (string.count("01") + string.count("10")) % 2
        case "cycle_nav":
            position = 0
            for step in string:
                position = (position + {"0": 0, "+": 1, "-": -1}[step]) % 5
            return position
    return eval(string) % 5


# The programs' tables: token to symbol, and class to answer. "." is the last token, " " padding.
TABLES = {
    ("slice", "parity"): ({1: "0", 2: "1", 0: " "}, {1: 0, 2: 1}, 3, 3),
    ("slice", "even_pairs"): ({1: "0", 2: "1", 0: " "}, {1: 0, 2: 1}, 3, 3),
    ("slice", "cycle_nav"): ({1: "0", 2: "+", 3: "-", 0: " "}, {4: 0, 5: 1, 6: 2, 7: 3, 8: 4}, 9, 9),
    ("slice", "mod_arith"): (
        {1: "+", 2: "-", 3: "*", 4: ".", 5: "0", 6: "1", 7: "2", 8: "3", 9: "4", 0: " "},
        {5: 0, 6: 1, 7: 2, 8: 3, 9: 4},
        10,
        10,
    ),
    ("slice", "mod_arith_brackets"): (
        {1: "0", 2: "1", 3: "2", 4: "3", 5: "4", 6: "+", 7: "-", 8: "*", 9: "(", 10: ")", 11: ".", 0: " "},
        {1: 0, 2: 1, 3: 2, 4: 3, 5: 4},
        12,
        12,
    ),
    ("xlstm", "mod_arith_brackets"): (
        {0: "0", 1: "1", 2: "2", 3: "3", 4: "4", 5: "+", 6: "-", 7: "*", 8: "(", 9: ")", 10: ".", 11: " "},
        {0: 0, 1: 1, 2: 2, 3: 3, 4: 4},
        12,
        12,
    ),
    ("deepmind", "parity"): ({0: "0", 1: "1", 2: "."}, {0: 0, 1: 1}, 3, 2),
    ("deepmind", "even_pairs"): ({0: "0", 1: "1", 2: "."}, {0: 0, 1: 1}, 3, 2),
    ("deepmind", "cycle_nav"): ({0: "-", 1: "0", 2: "+", 3: "."}, dict(zip(range(5), range(5), strict=True)), 4, 5),
    ("deepmind", "mod_arith"): (
        {0: "0", 1: "1", 2: "2", 3: "3", 4: "4", 5: "+", 6: "-", 7: "*", 9: "."},
        dict(zip(range(5), range(5), strict=True)),
        10,
        5,
    ),
    ("deepmind", "mod_arith_brackets"): (
        {0: "0", 1: "1", 2: "2", 3: "3", 4: "4", 5: "+", 6: "-", 7: "*", 8: "(", 9: ")", 11: "."},
        dict(zip(range(5), range(5), strict=True)),
        12,
        5,
    ),
}
for shared in LANGUAGES[:4]:
    TABLES["xlstm", shared] = TABLES["slice", shared]


def lengths_of_program(protocol: str, language: str, shortest: int, longest: int) -> list[int]:
    """The equally likely numbers of steps that a program makes of its two limits."""
    arithmetic, brackets = language == "mod_arith", language == "mod_arith_brackets"
    drawn = range(shortest, longest + 1)
    match protocol:
        case "slice":  # `=` counts; an odd length grows by 1 without brackets
            return [length + length % 2 if arithmetic else length for length in drawn]
        case "xlstm":  # the answer is no step; an expression has 3 tokens after it in its length, of which `=` is read
            if arithmetic:  # sizes = 2 * integers(min_seq, max_seq + 1) - 1
                return [2 * half - 1 - 1 for half in range((shortest + 1) // 2, (longest + 1) // 2 + 1)]
            return [max(length, 5) - 3 + 1 if brackets else length - 1 for length in drawn]
    return [(length if length % 2 or not arithmetic else length - 1) + 1 for length in drawn]  # and the blank


def make(protocol="slice", language="parity", seed=0, **values) -> FormalLanguage:
    values = {"train_size": 400, "test_size": 400, "same_length": 1} | values
    return FormalLanguage(FormalLanguageSettings.read({"protocol": protocol, "language": language} | values), seed, CPU)


@pytest.mark.parametrize(("protocol", "language"), sorted(TABLES))
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**62), shortest=st.integers(3, 30), more=st.integers(0, 30))
def test_answers_match_python(protocol, language, seed, shortest, more):
    symbols, classes, inputs, outputs = TABLES[protocol, language]
    task = make(
        protocol, language, seed, shortest=shortest, longest=shortest + more, test_shortest=shortest,
        test_longest=shortest + more, test_size=40,
    )  # fmt: skip
    assert (task.signature.input_size, task.signature.output_size, task.signature.tokens) == (inputs, outputs, True)
    possible = lengths_of_program(protocol, language, shortest, shortest + more)
    for split in (task.train, task.test):
        batch = split.batch(torch.arange(40))
        assert set(batch.lengths.tolist()) <= set(possible)
        for column, length, target in zip(batch.inputs.T.tolist(), batch.lengths, batch.targets.tolist(), strict=True):
            text = "".join(symbols[token] for token in column)
            padding = text[int(length) :]
            assert set(padding) <= {"." if protocol == "deepmind" else " "}
            string = text[: int(length)]
            ended = protocol == "deepmind" or language.startswith("mod")
            assert string.endswith(".") == ended
            assert " " not in string
            assert evaluate(language, string.removesuffix(".")) == classes[target]


@pytest.mark.parametrize(
    ("protocol", "language"),
    [
        case if case[1] in ("parity", "mod_arith") else pytest.param(*case, marks=pytest.mark.slow)
        for case in sorted(TABLES)
    ],
)
def test_lengths_match_the_programs(protocol, language):
    """Every length that a program draws occurs, as often as it draws it; tests have longer ones."""
    task = make(protocol, language, train_size=20_000, test_size=20_000)
    bounds = PROTOCOLS[protocol]
    for split, prefix in ((task.train, ""), (task.test, "test_")):
        steps = lengths_of_program(protocol, language, bounds[f"{prefix}shortest"], bounds[f"{prefix}longest"])
        expected, lengths = Counter(steps), split.batch(torch.arange(20_000)).lengths
        measured = Counter(lengths.tolist())
        assert set(measured) == set(expected)
        for length, count in expected.items():
            mean = 20_000 * count / len(steps)
            assert abs(measured[length] - mean) < 6 * mean**0.5
        if prefix:
            assert torch.equal(lengths, lengths.sort().values)
        else:
            assert FormalLanguage.trained_lengths(FormalLanguageSettings(protocol=protocol, language=language)) == (
                min(steps), max(steps)
            )  # fmt: skip


def test_sizes_and_lengths_follow_the_protocol_unless_given():
    for protocol, values in PROTOCOLS.items():
        read = FormalLanguageSettings.read({"protocol": protocol, "longest": "30"})
        assert read.model_dump() == read.model_dump() | values | {"longest": 30}
        assert FormalLanguageSettings.restore(read.canonical()) == read
    assert FormalLanguageSettings().model_dump() == FormalLanguageSettings(protocol="slice").model_dump()
    batches = {"slice": (256, 100_000), "xlstm": (256, 20_000), "deepmind": (128, 10_000)}
    assert all(PROTOCOLS[name]["train_size"] == size * steps for name, (size, steps) in batches.items())


def test_deepmind_batches_have_one_length_and_equal_test_counts():
    task = make("deepmind", train_size=128 * 300, test_size=30_720, same_length=128)
    drawn = set()
    for batch in (task.train.batch(torch.arange(128 * k, 128 * (k + 1))) for k in range(300)):
        assert len(batch.lengths.unique()) == 1
        drawn.add(int(batch.lengths[0]))
    assert drawn == set(range(2, 42))
    counts = Counter(task.test.batch(torch.arange(30_720)).lengths.tolist())
    assert counts == dict.fromkeys(range(42, 102), 512)


@pytest.mark.parametrize("language", LANGUAGES)
def test_string_depends_on_seed_epoch_and_number_alone(language):
    task = make(language=language)
    whole = task.train.batch(torch.arange(300))
    picked = torch.tensor([299, 3, 3, 150])
    batch = task.train.batch(picked)
    for name in ("inputs", "targets", "lengths"):
        assert torch.equal(getattr(batch, name), getattr(whole, name)[..., picked])
    task.epoch = 1
    assert not torch.equal(task.train.batch(torch.arange(300)).inputs, whole.inputs)
    longer = make(language=language, train_size=800)
    assert torch.equal(longer.train.batch(400 + torch.arange(300)).inputs, task.train.batch(torch.arange(300)).inputs)
    task.epoch = 0
    assert torch.equal(task.train.batch(torch.arange(300)).inputs, whole.inputs)
    assert not torch.equal(make(language=language, seed=1).train.batch(torch.arange(300)).inputs, whole.inputs)


def test_training_batches_have_one_shape_and_test_batches_end_with_their_longest():
    task = make()
    assert {task.train.batch(torch.tensor([k])).inputs.shape for k in range(20)} == {(40, 1)}
    for examples in torch.arange(400).split(50):
        batch = task.test.batch(examples)
        assert len(batch.inputs) == int(batch.lengths.max())


LITERAL = {
    "parity": (Parity(), lambda n: ["".join(s) for s in product("01", repeat=n)]),
    "even_pairs": (EvenPairs(), lambda n: ["".join(s) for s in product("01", repeat=n)]),
    "cycle_nav": (CycleNavigation(), lambda n: ["".join(s) for s in product("0+-", repeat=n)]),
    "mod_arith": (
        ModularArithmetic(),
        lambda n: ["".join(s) for s in product(*("01234" if k % 2 == 0 else "+-*" for k in range(n)))],
    ),
}


@pytest.mark.parametrize(
    ("language", "length"),
    [(name, n) for name in LITERAL for n in (1, 3, 5) if n < 5 or name != "mod_arith"] + [("mod_arith", 5)],
)
def test_distribution_of_answers_covers_all_strings(language, length):
    definition, strings = LITERAL[language]
    answers = Counter(evaluate(language, string) for string in strings(length))
    expected = [answers[k] / answers.total() for k in range(definition.answers)]
    assert definition.distributions(length + 2)[length].tolist() == pytest.approx(expected, abs=1e-12)


def all_expressions(length: int, operators: str) -> dict[str, float]:
    """Every expression of a length with its chance."""
    match length:
        case 1:
            return dict.fromkeys("01234", 0.2)
        case 2:
            return {f"-{d}": 0.2 for d in "01234"}
        case 3:
            return {f"({d})": 0.2 for d in "01234"}
        case 4:
            return {f"(-{d})": 0.2 for d in "01234"}
    chances: dict[str, float] = {}
    for left in range(1, length - 3):
        for (a, p), (b, q) in product(
            all_expressions(left, operators).items(), all_expressions(length - 3 - left, operators).items()
        ):
            for operator in operators:
                text = f"({a}{operator}{b})"
                chances[text] = chances.get(text, 0) + p * q / (length - 4) / len(operators)
    return chances


@pytest.mark.parametrize(
    ("symbols", "operators"), [("+-*", (PLUS, MINUS, TIMES)), ("+-**", (PLUS, MINUS, TIMES, TIMES))]
)
@pytest.mark.parametrize("length", [5, 6, *(pytest.param(length, marks=pytest.mark.slow) for length in (8, 10))])
def test_bracketed_expressions_follow_the_grammar(symbols, operators, length):
    chances = all_expressions(length, symbols)
    assert sum(chances.values()) == pytest.approx(1)
    values = [0.0] * 5
    for text, chance in chances.items():
        values[eval(text) % 5] += chance
    assert value_distributions(length, operators)[length].tolist() == pytest.approx(values, abs=1e-12)
    count = 40_000
    drawn, results = BracketedArithmetic(*operators).strings(
        Draws(0, "test"), torch.arange(count), torch.full((count,), length), length
    )
    texts = Counter("".join(ARITHMETIC[symbol] for symbol in row) for row in drawn.tolist())
    assert set(texts) <= set(chances)
    shapes: dict[str, float] = {}
    for text, chance in chances.items():  # digits aside, so that every shape is drawn often enough
        shape = "".join("d" if symbol in "01234" else symbol for symbol in text)
        shapes[shape] = shapes.get(shape, 0) + chance
    measured = Counter()
    for text, times in texts.items():
        measured["".join("d" if symbol in "01234" else symbol for symbol in text)] += times
    for shape, chance in shapes.items():
        assert abs(measured[shape] - count * chance) < 6 * (count * chance) ** 0.5
    frequencies = torch.bincount(results, minlength=5) / count
    assert frequencies.tolist() == pytest.approx(values, abs=0.02)


@pytest.mark.parametrize(("protocol", "language"), sorted(TABLES))
def test_baseline_is_the_most_frequent_answer_of_the_tests(protocol, language):
    values = FormalLanguageSettings.read({"protocol": protocol, "language": language})
    baselines = FormalLanguage.baselines(values)
    task = make(protocol, language, test_size=20_000)
    targets = torch.cat([task.test.batch(examples).targets for examples in torch.arange(20_000).split(1000)])
    shares = torch.bincount(targets).double() / len(targets)
    shares = shares[shares > 0]
    assert baselines["accuracy"] == pytest.approx(shares.max().item(), abs=0.015)
    assert baselines["cross_entropy"] == pytest.approx(-(shares * shares.log()).sum().item(), abs=0.01)
    if language != "mod_arith_brackets":
        chance = 1 / 2 if language in ("parity", "even_pairs") else 1 / 5
        assert baselines["accuracy"] == pytest.approx(chance, abs=1e-6)
        assert baselines["cross_entropy"] == pytest.approx(-math.log(chance), abs=1e-6)


def test_metrics_and_score_match_a_count_by_hand():
    task = make(language="cycle_nav")
    batch = task.test.batch(torch.arange(50))
    outputs = torch.randn(50, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hits = [int(row.argmax()) == target for row, target in zip(outputs, batch.targets.tolist(), strict=True)]
    nats = [-math.log(row.softmax(0)[t]) for row, t in zip(outputs, batch.targets.tolist(), strict=True)]
    measured = task.measure(outputs, batch.targets)
    assert (float(measured["accuracy"][0]), measured["accuracy"][1]) == (sum(hits), 50)
    assert float(measured["cross_entropy"][0]) == pytest.approx(sum(nats))
    assert task.loss(outputs, batch.targets).item() == pytest.approx(sum(nats) / 50)
    assert task.score(outputs, batch.targets).tolist() == hits


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"shortest": 41}, "shortest=41 is greater than longest=40"),
        ({"test_longest": 39}, "test_shortest=40 is greater than test_longest=39"),
        ({"protocol": "xlstm", "shortest": 2}, "shortest=2 is too short for protocol=xlstm"),
        ({"protocol": "other"}, "protocol=other"),
    ],
)
def test_impossible_settings_are_refused(values, words):
    with pytest.raises(UsageError, match=words):
        FormalLanguageSettings.read(values)


@pytest.mark.parametrize(("protocol", "shares"), [("slice", "+-*"), ("deepmind", "+-*"), ("xlstm", "+-")])
def test_operators_with_brackets_have_equal_probability(protocol, shares):
    """Operators are the symbols that follow a number or a closed expression."""
    symbols = TABLES[protocol, "mod_arith_brackets"][0]
    batch = make(protocol, "mod_arith_brackets", train_size=2000).train.batch(torch.arange(2000))
    counts: Counter[str] = Counter()
    for column, length in zip(batch.inputs.T.tolist(), batch.lengths, strict=True):
        string = "".join(symbols[token] for token in column[: int(length)])
        counts.update(
            symbol for before, symbol in pairwise(string) if symbol in "+-*" and (before in "01234" or before == ")")
        )
    total = sum(counts.values())
    assert set(counts) == set(shares)
    for count in counts.values():
        assert abs(count - total / len(shares)) < 6 * (total / len(shares)) ** 0.5


def test_only_the_changed_form_has_another_version():
    """Runs of the other forms keep their keys; one of the earlier expressions is stale and is not resolved again."""
    versions = {
        (protocol, language): resolve(
            Catalog(), "formal_language", "gru", {"protocol": protocol, "language": language}
        ).spec.task_version
        for protocol in PROTOCOLS
        for language in LANGUAGES
    }
    assert versions.pop(("slice", "mod_arith_brackets")) == "2"
    assert set(versions.values()) == {"1"}
    spec = resolve(Catalog(), "formal_language", "gru", {"language": "mod_arith_brackets"}).spec
    with pytest.raises(UsageError, match="formal_language 2 and gru 1, and the run needs formal_language 1 and gru 1"):
        resolve_again(Catalog(), replace(spec, task_version="1"))


@pytest.mark.parametrize(
    ("protocol", "language", "shortest", "least"),
    [("slice", "mod_arith_brackets", 1, 2), ("xlstm", "parity", 2, 3), ("xlstm", "mod_arith_brackets", 2, 3)],
)
def test_string_has_a_symbol_before_its_last_token(protocol, language, shortest, least):
    with pytest.raises(UsageError, match=f"shortest={shortest} is too short for protocol={protocol}, .* least {least}"):
        make(protocol, language, shortest=shortest)
    batch = make(protocol, language, shortest=least, longest=least).train.batch(torch.arange(50))
    assert batch.lengths.min() >= 2
