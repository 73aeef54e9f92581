"""Parameter counts against the papers' printed ones."""

import json

import pytest
import torch

from orthobench.model import Signature
from orthobench.options.assignments import parse_assignments
from orthobench.papers.sizes import PrintedSize, sizes
from orthobench.plugins import Catalog

ROWS = list(sizes())
CATALOG = Catalog()


def count(size: PrintedSize) -> int:
    cls = CATALOG.load("model", size.model)
    settings = cls.Settings.read(parse_assignments(size.settings.split()))
    return cls(settings, Signature(size.inputs, size.outputs, "all"), torch.Generator()).parameter_count()


@pytest.mark.parametrize("size", ROWS, ids=lambda size: f"{size.source}-{size.task}-{size.model}-{size.settings}")
def test_every_count_matches_or_is_pinned_with_a_note(size):
    assert (size.count is not None) == bool(size.note)
    if size.note:
        assert count(size) == size.count
    else:
        assert size.agrees(count(size))


def test_at_least_six_tenths_of_the_counts_match():
    assert sum(not size.agrees(count(size)) for size in ROWS) < len(ROWS) * 0.4


@pytest.mark.parametrize(
    ("printed", "embedding", "inside", "outside"),
    [("16k", 0, 16_499, 16_501), ("2.6k", 0, 2_649, 2_651), ("1.32M", 10_000, 1_314_999, 1_315_001)],
)
def test_agreement_is_judged_at_the_published_digits(printed, embedding, inside, outside):
    size = ROWS[0].model_copy(update={"printed": printed, "embedding": embedding})
    assert size.agrees(inside)
    assert not size.agrees(outside)


def test_table_of_sizes_is_printed(orthobench):
    outcome = orthobench("plugins", "--params")
    assert outcome.code == 0
    assert "136,970" in outcome.out
    rows = json.loads(orthobench("plugins", "--params", "--json").out)
    assert [row["count"] for row in rows if (row["model"], row["settings"]) == ("scornn", "hidden_size=190")] == [
        21_764
    ]
