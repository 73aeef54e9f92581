"""Claims in a paper's file: each kind is a class, and a mistake is named with its fix."""

from __future__ import annotations

import re

import pytest
from support.claims import read, stated

from orthobench.analysis.claims.claim import Claim
from orthobench.analysis.claims.curve_shapes import Bypasses, DropsWithin, EndsBelow
from orthobench.analysis.claims.reading import KINDS
from orthobench.errors import UsageError


def kinds(claim: type[Claim] = Claim) -> set[type[Claim]]:
    """Return the classes of claims that have a name for files."""
    below = {kind for subclass in claim.__subclasses__() for kind in kinds(subclass)}
    return below | ({claim} if claim.model_fields["check"].default else set())


def test_every_claim_class_is_a_kind_under_its_own_name():
    assert set(KINDS.values()) == {kind for kind in kinds() if isinstance(kind.model_fields["check"].default, str)}
    for check, kind in KINDS.items():
        assert check == re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
        assert kind.__doc__
        assert all(field.description for name, field in kind.model_fields.items() if name != "check"), check


@pytest.mark.parametrize(
    ("check", "fields", "expected"),
    [
        ("ends_below", {"share": 0.1}, EndsBelow(text="", model="rnn", share=0.1)),
        ("bypasses", {"iterations": 200}, Bypasses(text="", model="rnn", iterations=200)),
        ("drops_within", {"epochs": 1.0}, DropsWithin(text="", model="rnn", epochs=1)),
    ],
)
def test_check_names_the_class_and_other_keys_are_its_fields(check, fields, expected):
    assert read(stated(check, **fields)) == expected


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (stated("ends_bellow", share=0.1), "unknown check 'ends_bellow': did you mean ends_below"),
        (stated("xyz"), "unknown check 'xyz': known: best, bypasses, "),
        ({"text": "so", "model": "rnn"}, "check is missing; known: best, bypasses, "),
        (stated("ends_below"), "ends_below needs share: the highest end, as a share of the baseline"),
        (stated("bypasses", iteration=200), "bypasses needs iterations: the limit, in iterations at the baseline"),
        (stated("bypasses", iteration=200), "unknown field of bypasses 'iteration': did you mean iterations"),
        (stated("ends_below", factor=0.1, share=0.1), "unknown field of ends_below 'factor': "),
        (stated("best", share=0.1), "unknown field of best 'share': "),
        (stated("ends_below", panel="a", share=0.1), "unknown field of ends_below 'panel': "),
        (stated("ends_below", share="low"), "ends_below.share: Input should be a valid number"),
        (stated("ends_below", share=-0.1), "ends_below.share: Input should be greater than or equal to 0"),
        (stated("bypasses", iterations=0.5), "bypasses.iterations: Input should be a valid integer"),
        (stated("ends_below", model="", share=0.1), "ends_below.model: String should have at least 1 character"),
        ({"text": "so", "check": "ends_at_distance", "panel": "a"}, "give at_least, at_most or both"),
        ({"text": "so", "check": "fixed_points", "points": 2}, "fixed_points needs panel: the panel"),
        (stated("holds_lengths"), "give up_to, lost_from or both"),
        (stated("holds_lengths", up_to=9, lost_from=9), "lost_from should be greater than up_to"),
        ({"check": "ends_below", "model": "rnn", "share": 0.1}, "ends_below needs text: the statement in words"),
    ],
)
def test_invalid_claim_names_the_fix(table, message):
    with pytest.raises(UsageError) as raised:
        read(table)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"figure 1, claim '{table.get('text', '')}': ")
    assert "\n" not in str(raised.value)
