"""Train runs: in this process, in worker processes, on Ray or on SLURM."""
