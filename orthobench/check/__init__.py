"""Whether the numbers are still what they were: a baseline, runs of today, and a verdict on each metric."""
