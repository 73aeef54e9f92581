"""Plan which runs to train: grids, sweep files, papers, searches. A sweep is the set of its runs, each trained once."""
