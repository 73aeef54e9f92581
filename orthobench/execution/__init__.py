"""Execute runs: one run in this process, or many in this process, in worker processes, on Ray or on SLURM."""
