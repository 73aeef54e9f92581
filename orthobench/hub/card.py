"""The page of a data set repository: what its files hold, in the form that Hugging Face reads."""

from __future__ import annotations

from orthobench.hub.shards import SCHEMA_NAMES

NAME = "README.md"


def card() -> str:
    """Return the page of a repository. It names no runs, so that it stays true when others are added."""
    configs = "\n".join(f'- config_name: {name}\n  data_files: "{name}/*.parquet"' for name in SCHEMA_NAMES)
    return CARD.replace("{configs}", configs)


CARD = """---
tags:
- recurrent-neural-networks
- benchmark
- orthobench
configs:
{configs}
---
# Runs of orthobench

Each row of `runs` is one training of a recurrent network on a task. Its `key` is the hash of its `spec`: the task, the
model, all settings, the versions and the seed. The other tables belong to it:

| table | a row is |
| --- | --- |
| `runs` | a run with its settings (JSON), its status and its result |
| `segments` | a part of a run that was trained without interruption, with its environment |
| `metrics` | a value of a metric after an iteration; `kind` names one that is not finite |
| `traces` | a vector that was logged after an iteration, such as gradient norms over time steps |
| `environments` | the versions, the commit and the hardware (JSON) |
| `sources` | a file of a plugin or layer that is not built in, by its SHA-256 |

Bring all runs into a database, and train one of them again to check its numbers:

    orthobench merge hf://ORG/NAME
    orthobench verify KEY

Add your own runs with `orthobench publish --hub ORG/NAME`, which changes no file of others.
"""
