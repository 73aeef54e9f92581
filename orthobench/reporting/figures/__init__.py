"""The figures of page, files and notebooks."""
