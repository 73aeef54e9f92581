"""The page of a data set repository: what its files hold."""

NAME = "README.md"
CARD = """---
tags:
- recurrent-neural-networks
- benchmark
- orthobench
---
# Runs of orthobench

Each file in `runs` is an SQLite database, named by its SHA-256. Each row of its table `run` is one training of a
recurrent network on a task. The `key` is the hash of the `spec`: the task, the model, all settings, the versions and
the seed. The other tables belong to it:

| table | a row is |
| --- | --- |
| `segment` | a part of a run that was trained without interruption, with its environment |
| `metric` | a value of a metric (`series`) after an iteration; `kind` names one that is not finite |
| `trace` | vectors that were logged after an iteration, such as gradient norms over time steps |
| `environment` | the versions, the commit and the hardware (JSON) |
| `source` | a file of a plugin or layer that is not built in, by its SHA-256 |

Bring all runs into a database, and train one of them again to check its numbers:

    orthobench merge hf://ORG/NAME
    orthobench verify KEY

Add your own runs with `orthobench publish --hub ORG/NAME`, which changes no file of others.
"""
