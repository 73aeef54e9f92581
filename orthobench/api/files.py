"""What a TOML file says of a run or of a search, as the arguments of `run` and of `tune`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orthobench.options.run_options import RunOptions
from orthobench.planning.file import RunFile, SearchFile, TrainingFile, read_file


def run_in(path: Path, options: RunOptions) -> dict[str, Any]:
    """Return the arguments of `run` in a TOML file; the options have its plugin files, too.

    Raises:
        UsageError: the file is invalid.
    """
    file = read_file(path, RunFile)
    return _shared(file, path, options) | {"model": file.model, "seed": file.seed}


def search_in(path: Path, options: RunOptions) -> dict[str, Any]:
    """Return the arguments of `tune` in a TOML file; the options have its plugin files, too.

    Raises:
        UsageError: the file is invalid.
    """
    file = read_file(path, SearchFile)
    own = {name: getattr(file, name) for name in ("models", "grid", "match_parameters", "trials", "prune")}
    return _shared(file, path, options) | own


def _shared(file: TrainingFile, path: Path, options: RunOptions) -> dict[str, Any]:
    options = replace(options, plugins=(*options.plugins, *file.plugin_files(path)))
    return {"task": file.task, "preset": file.preset, "settings": file.overrides(), "options": options}
