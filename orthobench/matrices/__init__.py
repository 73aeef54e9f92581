"""Parametrisations and initial values of recurrent matrices, one map per file, independent of models and tasks."""
