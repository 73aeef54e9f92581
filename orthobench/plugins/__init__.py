"""Plugins: tasks, models and probes that are built in, installed, or in single files."""

from orthobench.plugins.catalog import KINDS, Catalog, Plugin, PluginError, PluginKind, registered_names
from orthobench.plugins.sources import Sources

__all__ = ["KINDS", "Catalog", "Plugin", "PluginError", "PluginKind", "Sources", "registered_names"]
