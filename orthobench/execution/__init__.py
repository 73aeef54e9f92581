"""Execute many runs: in this process, in worker processes, or on a Ray cluster."""

LARGEST_SEED = 2**32 - 1
"""The seeds of runs are 0 to this number; numpy's generators take no others."""
