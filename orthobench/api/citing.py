"""The papers behind runs, models and tasks, as BibTeX."""

from __future__ import annotations

import re

from orthobench.data.registry import datasets
from orthobench.errors import UsageError, unknown
from orthobench.options.arguments import Database, Files, Name
from orthobench.options.checked import checked
from orthobench.papers.citations import keys_of, references
from orthobench.plugins import Catalog, PluginKind
from orthobench.settings import merged_settings
from orthobench.spec.index import description
from orthobench.store import Run, open_store
from orthobench.store.sqlite import named_or_default
from orthobench.version import __version__

KINDS: tuple[PluginKind, ...] = ("model", "task")


@checked
def cite(*names: Name, db: Database | None = None, plugins: Files = ()) -> list[str]:
    """Return the BibTeX entries of the papers behind models, tasks and runs, each entry once.

    For a run, these are the papers of its model, task and data set, and an entry for the version of orthobench that
    trained it. An external plugin has no entry; instead, a comment contains the paper that its class names.

    Args:
        names: names of models and tasks, also as "model/lstm", and keys of runs or their first digits.
        db: the database of the runs; None for the default database.
        plugins: Python files with more models and tasks.

    Raises:
        UsageError: a name is neither a model nor a task nor the key of a run.
    """
    catalog = Catalog(plugins)
    entries: list[str] = []
    for name in names:
        if plugins_of_name := catalog.find_all(name):
            entries += [entry for plugin in plugins_of_name for entry in _of_plugin(catalog, plugin.kind, plugin.name)]
        elif re.fullmatch("[0-9a-f]+", name):
            with open_store(named_or_default(db, writes=False)) as store:
                entries += _of_run(catalog, store.get(name))
        else:
            raise unknown("model, task or run", name, [other for kind in KINDS for other in catalog.names(kind)])
    return list(dict.fromkeys(entries))


def _of_plugin(catalog: Catalog, kind: PluginKind, name: str) -> list[str]:
    plugin = catalog.find(kind, name)
    name = plugin.name
    if plugin.is_built_in and (cites := description(plugin).get("cites")):
        return _entries(cites)
    paper = getattr(catalog.load(kind, name), "paper", "") or "its class names no paper"
    return [f"% {kind} {name}: {' '.join(paper.split())}"]


def _of_run(catalog: Catalog, run: Run) -> list[str]:
    entries = []
    for kind, name in (("model", run.model), ("task", run.task)):
        try:
            entries += _of_plugin(catalog, kind, name)  # type: ignore[arg-type]
        except UsageError:
            entries.append(f"% {kind} {name}: its plugin is not here, name its file with `plugins`")
    chosen, known = merged_settings(run.spec).get("dataset"), datasets()
    for data in (chosen, f"{chosen}_{run.task}"):  # the setting of task mnist calls Fashion-MNIST "fashion"
        if data in known:
            entries += _entries(known[data].cites)
    return [*entries, _program(run)]


def _entries(cites: str) -> list[str]:
    known = references()
    for key in keys_of(cites):
        if key not in known:
            raise unknown("key in orthobench/papers/references.bib", key, known)
    return [known[key] for key in keys_of(cites)]


def _program(run: Run) -> str:
    """Return the entry for the version of orthobench that trained a run."""
    facts = run.environment.facts
    version = facts.get("packages", {}).get("orthobench", __version__)
    commit = f", commit {facts['commit'][:12]}" if facts.get("commit") else ""
    return (
        "@misc{orthobench,\n  author = {{the orthobench developers}},\n"
        "  title = {orthobench: a benchmark harness for recurrent networks},\n"
        f"  note = {{Version {version}{commit}}}\n}}"
    )
