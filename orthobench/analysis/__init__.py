"""Analyse stored runs: statistics over seeds, variants, comparisons, claims."""
