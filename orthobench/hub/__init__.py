"""Runs of many people: SQLite files in a data set repository of Hugging Face, or in a folder with the same files."""
