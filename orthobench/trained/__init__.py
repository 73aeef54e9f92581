"""Trained models: load the kept weights of runs, test them again, and export them for other programs."""
