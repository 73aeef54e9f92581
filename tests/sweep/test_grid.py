import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.sweep.grid import combinations, parse_grid
from orthobench.sweep.plan import resolve_all

names = st.text("abcdefgh_", min_size=1, max_size=8)
values = st.lists(st.text("0123456789.e-", min_size=1, max_size=5), min_size=1, max_size=4, unique=True)
CATALOG = Catalog()


@given(st.dictionaries(names, values, max_size=3))
def test_a_grid_is_read_back_and_combined_completely(grid):
    parsed = parse_grid([f"{key}={','.join(entries)}" for key, entries in grid.items()])
    assert parsed == grid
    points = combinations(parsed)
    count = 1
    for entries in grid.values():
        count *= len(entries)
    assert len(points) == len({tuple(point.items()) for point in points}) == count
    assert all(point[key] in grid[key] for point in points for key in grid)


@pytest.mark.parametrize("text", ["hidden_size", "hidden_size=", "hidden_size=1,,2", "hidden_size=1,1", "=1,2", "a=,"])
def test_grids_that_name_no_value_are_refused(text):
    with pytest.raises(UsageError):
        parse_grid([text])


def test_a_sweep_compares_every_model_before_the_next_seed():
    runs = resolve_all(CATALOG, "adding", ["rnn", "lstm"], {}, {"hidden_size": ["4", "8"]}, range(2), "quick")
    order = [(r.spec.seed, r.spec.model, r.spec.model_settings["hidden_size"]) for r, _ in runs]
    assert order == [(seed, model, n) for seed in (0, 1) for model in ("rnn", "lstm") for n in (4, 8)]
    assert len({r.spec.key for r, _ in runs}) == 8


def test_points_that_are_the_same_run_are_refused():
    with pytest.raises(UsageError, match="same run"):
        resolve_all(CATALOG, "adding", ["rnn"], {}, {"learning_rate": ["1e-3", "0.001"]}, [0], "paper")
    with pytest.raises(UsageError, match="both set and in the grid"):
        resolve_all(CATALOG, "adding", ["rnn"], {"epochs": "1"}, {"epochs": ["1", "2"]}, [0], "paper")
