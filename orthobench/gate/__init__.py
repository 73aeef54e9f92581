"""The check against a baseline: its recorded values, the results of new runs, and a verdict on each metric."""
