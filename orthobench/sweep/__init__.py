"""Sweeps: a grid of runs, each made once. A sweep is nothing but the set of its runs."""

MOST_SEEDS = 10_000
"""More are a slip of the pen."""
