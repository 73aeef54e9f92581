"""Plugins: tasks, models and probes that are built in, installed, or in single files."""

from orthobench.plugins.catalog import KINDS, Catalog, Plugin, PluginError, PluginKind, registered_names

__all__ = ["KINDS", "Catalog", "Plugin", "PluginError", "PluginKind", "registered_names"]
