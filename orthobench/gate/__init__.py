"""The check of a baseline: its values, the results of today's runs, and a verdict on each metric."""
