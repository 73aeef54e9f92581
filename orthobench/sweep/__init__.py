"""Sweeps: a grid of runs, each made once. A sweep is nothing but the set of its runs."""
