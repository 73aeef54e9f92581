"""orthobench: recurrent networks of the literature on the literature's tasks, one way, into one database."""

__version__ = "0.1.0"
