"""Requests: hashes of the words that ask for a run. With its request, a finished run is found without torch.

Resolving settings takes the classes of models, which need torch. A request avoids this, because the same words and the
same code always resolve to the same run. A request is therefore the hash of the words and of the whole code, and the
database stores the last request of each run. The seed is not part of it.

Different code gives different requests, and the run is then resolved in the usual way. A run whose settings name a file
or folder is also resolved in this way, because the words do not determine the content of the file.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from orthobench.arguments import Preset
from orthobench.plugins import Catalog
from orthobench.plugins.static import plugin_settings
from orthobench.settings import CHECKSUM, text

PACKAGES = ("orthobench", "orthobench.models", "orthobench.tasks", "orthobench.probes")
SOURCES = (".py", ".toml")
"""Suffixes of the files on which the resolution of settings depends: code and the records of the papers."""


def request_of(catalog: Catalog, task: str, model: str, settings: Mapping[str, Any], preset: Preset) -> str | None:
    """Return the request for a run, without its seed; None if the words do not determine the run.

    This is the case if a plugin is not built in, because its code may change, or if a setting names a file or folder.

    Args:
        settings: the user's settings, as values or as text.
    """
    if not (catalog.find("task", task).is_built_in and catalog.find("model", model).is_built_in):
        return None
    if not _probes(settings) <= {plugin.name for plugin in catalog if plugin.kind == "probe" and plugin.is_built_in}:
        return None
    declared = plugin_settings(catalog, "task", task) | plugin_settings(catalog, "model", model)
    if any(name + CHECKSUM in declared for name in settings):
        return None
    words = [code_hash(), task, model, preset, sorted((name, text(v)) for name, v in settings.items())]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]


def _probes(settings: Mapping[str, Any]) -> set[str]:
    """Return the names of the probes that the user adds."""
    names = settings.get("probes", [])
    return set(names.split(",") if isinstance(names, str) else names)


@cache
def code_hash() -> str:
    """Return the hash of the package's code."""
    folders = {Path(path) for name in PACKAGES for path in importlib.import_module(name).__path__}
    files = {file for folder in folders for file in folder.rglob("*") if file.suffix in SOURCES}
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(f"{file}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()
