"""Plan which runs to train: grids, sweep files, papers, searches. A sweep is the set of its runs, each trained once."""

MAX_SEEDS = 10_000
"""The largest number of seeds; a larger one is treated as a typing error."""
