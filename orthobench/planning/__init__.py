"""The runs of a sweep: grids, sweep files, papers, searches. A sweep is the set of its runs, each trained once."""

MAX_SEEDS = 10_000
"""The largest number of seeds; more is taken for a typing error."""
