"""Passes over all steps at once, one folder each, as operations are."""
