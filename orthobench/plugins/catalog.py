"""Find tasks, models and probes: built-in ones, entry points of installed packages, and single files.

Listing names does not import any plugin. A plugin that cannot be loaded is listed with the reason, and does not affect
other plugins.

A layer's name says which code to import, so only the user's words may do so: `Catalog.named` takes them. A name in a
database or in a file of weights may be a stranger's. `Catalog.find` therefore looks names up and imports no new layer.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from orthobench.arrays.words import is_own_data
from orthobench.errors import UsageError, unknown
from orthobench.plugins.layers import (
    NOTEBOOK,
    NamedLayer,
    carried_layer,
    find_layer,
    quietly,
)
from orthobench.plugins.loading import LOCAL, PathState, path_state, run_file, serve_modules
from orthobench.plugins.sources import Sources, installed_sources, read_plugin_file
from orthobench.system.own_code import described

PluginKind = Literal["task", "model", "probe"]
KINDS: tuple[PluginKind, ...] = ("task", "model", "probe")
REQUIRED: dict[PluginKind, tuple[str, ...]] = {
    "task": ("title", "Settings", "metrics"),
    "model": ("title", "paper", "Settings"),
    "probe": ("title", "paper"),
}
"""The class attributes that a plugin has to define, by kind."""
BUILT_IN = "built in"


_NAMED: dict[str, NamedLayer] = {}
"""The layers that the user has named in this process, by name."""


class PluginError(Exception):
    """A plugin cannot be used; the message gives the reason."""


@dataclass(frozen=True)
class Plugin:
    """A task, model or probe by name.

    `load` imports the plugin, and raises PluginError with the reason if this fails. `sources` returns the source code
    of a loaded plugin; it is None for a built-in plugin, which its version number identifies.
    """

    kind: PluginKind
    name: str
    origin: str
    load: Callable[[], Any]
    sources: Callable[[], Sources | None] = lambda: None

    @property
    def is_built_in(self) -> bool:
        return self.origin == BUILT_IN

    @property
    def seeds_by_name(self) -> bool:
        """Whether the seed of a model's weights depends on its name, which is so where a name cannot change.

        A file, a class of a notebook and an entry point may move or get another name, and keep their weights.
        """
        sources = self.sources()
        return sources is None or (":" in self.name and not sources.path)


class Catalog:
    """All plugins of one process, by kind and name.

    Args:
        files: the user's plugin files, or their sources if another process has read them.
        installed: whether the plugins of other installed packages belong to it.

    Attributes:
        broken: installed plugins whose name is already taken, each with the reason.
        files: the sources of the user's plugin files.

    Raises:
        UsageError: a plugin file cannot be used, or defines a name that is already taken.
    """

    def __init__(self, files: Iterable[Path | Sources] = (), *, installed: bool = True) -> None:
        self._plugins: dict[tuple[PluginKind, str], Plugin] = {}
        self.broken: list[tuple[Plugin, str]] = []
        for kind in KINDS:
            for plugin in (*_built_in(kind), *(_installed(kind) if installed else ())):
                first = self._plugins.setdefault((kind, plugin.name), plugin)
                if first is not plugin:
                    self.broken.append((plugin, f"the name is taken by {_owner(first)}"))
        files = tuple(files)
        self.files = _each_once(files) if files else ()
        _serve_imports(self.files)
        for sources in self.files:
            if sources.layer:
                self._add(carried_layer(sources), is_carried=True)
                continue
            for plugin in _from_file(sources):
                first = self._plugins.setdefault((plugin.kind, plugin.name), plugin)
                if first is not plugin:
                    raise UsageError(
                        f"plugin file {plugin.origin}: the {plugin.kind} name '{plugin.name}' is taken by "
                        f"{_owner(first)}: rename the file, or set name = '...' in its class"
                    )

    def named(self, model: Any) -> str:
        """Return the name of a model that the user has named; a layer of another program becomes known by it.

        The name of a layer that is known already may also be the path of another file, `cell.py:MyCell` after
        `./folder/cell.py:MyCell`.

        Args:
            model: a name, a path with a class, or a class. It must come from the user, because the code of a layer is
                imported.

        Raises:
            UsageError: the layer cannot be found, or another one has its name.
        """
        if isinstance(model, str) and (":" not in model or ("model", model) in self._plugins):
            file, of_file, _ = model.rpartition(".py:")
            if not of_file or not Path(f"{file}.py").is_file():
                return model
        layer = find_layer(model, self.files)
        self._add(layer)
        _NAMED[layer.name] = layer
        return layer.name

    def named_task(self, task: Any, settings: Mapping[str, Any] | None = None) -> str:
        """Return the name of a task that the user has named; own data, such as `array:data.npz`, becomes known by it.

        Args:
            task: a name, a word for a file or folder, or data in memory (`orthobench.Data`).
            settings: the user's settings, which may say how to read the file.

        Raises:
            UsageError: the file cannot be read.
        """
        word = task if isinstance(task, str) else task.task_word()
        if not is_own_data(word) or ("task", word) in self._plugins:
            return word
        from orthobench.arrays.named import find_data  # with numpy, which the list of plugins does not need

        return self._add_data(find_data(word, settings))

    def _add_data(self, data: Any) -> str:
        self._plugins["task", data.name] = Plugin("task", data.name, data.path or "own data", data.load)
        return str(data.name)

    def task_word(self, task: str) -> str:
        """Return a task as a command names it in any folder: own data by its path."""
        origin = self.find("task", task).origin
        return f"{task.partition(':')[0]}:{origin}" if is_own_data(task) and Path(origin).is_absolute() else task

    def word(self, model: str) -> str:
        """Return a model as a command names it in this folder: a layer of a file by the path of the file."""
        sources = self.find("model", model).sources()
        if sources is None or ".py:" not in sources.layer:
            return model
        return f"{sources.path}:{model.rpartition(':')[2]}"

    def _add(self, layer: NamedLayer, is_carried: bool = False) -> None:
        """Add a layer of another program; its code becomes one of the files unless it is installed."""
        first = self._plugins.get(("model", layer.name))
        if first is not None and ((known := first.sources()) is None or known.revision != layer.sources.revision):
            files = f", in {first.origin} and {layer.sources.path}" if layer.sources.path else ""
            raise UsageError(f"two different layers have the name '{layer.name}'{files}: rename one of them")
        if first is None:
            self._plugins["model", layer.name] = Plugin(
                "model", layer.name, layer.sources.origin, lambda: _load_layer(layer), lambda: layer.sources
            )
            if layer.sources.path and not is_carried:  # every machine with the same packages has an installed one
                self.files = (*self.files, layer.sources)

    def _recall(self, name: str) -> None:
        """Add a layer of this name if the user has named it in this process, or has given the file with its class.

        Raises:
            UsageError: the user has done neither; the message says how to name it.
        """
        where, _, _ = name.rpartition(":")
        if name in _NAMED:
            self._add(_NAMED[name])
        elif any(Path(each.path).name == where and not each.layer for each in self.files):
            self._add(find_layer(name, self.files))
        elif where == NOTEBOOK:
            raise UsageError(
                f"{name:.200} was a class of a notebook or script: load the run there and pass the class as `model`"
            )
        else:
            given = f"./{name}" if where.endswith(".py") and "/" not in where else name
            raise UsageError(
                f"the layer {name:.200} is named only in stored data, which may be a stranger's, so its code is not "
                f"imported: if you trust it, add `model={given[:200]!r}`"
            )

    def names(self, kind: PluginKind) -> list[str]:
        return sorted(name for plugin_kind, name in self._plugins if plugin_kind == kind)

    def built_in(self, kind: PluginKind) -> list[str]:
        """Return the names of the built-in plugins of a kind in alphabetical order."""
        return [plugin.name for plugin in self if plugin.kind == kind and plugin.is_built_in]

    def usable(self, kind: PluginKind) -> dict[str, Any]:
        """Return the classes of a kind by name, without those that cannot be loaded; `orthobench plugins` says why."""
        classes = {}
        for plugin in self:
            if plugin.kind == kind:
                with suppress(PluginError):
                    classes[plugin.name] = plugin.load()
        return classes

    def find(self, kind: PluginKind, name: str) -> Plugin:
        """Return the plugin of this kind and name. The name may come from stored data.

        Raises:
            UsageError: no plugin has this name, in which case the message lists the nearest names, or several have it;
                or it names a layer that the user has not named.
        """
        if kind == "model" and ":" in name and (kind, name) not in self._plugins:
            self._recall(name)
        if kind == "task" and is_own_data(name) and (kind, name) not in self._plugins:
            from orthobench.arrays.named import Named  # as above

            self._add_data(Named(name))
        for other, _ in self.broken:
            if (other.kind, other.name) == (kind, name):
                raise UsageError(
                    f"the {kind} name '{name}' of {other.origin} is taken by {_owner(self._plugins[kind, name])}: "
                    f"rename the entry point in {other.origin}, or uninstall it"
                )
        try:
            return self._plugins[kind, name]
        except KeyError:
            if kind == "model" and "." in name:
                raise UsageError(
                    f"unknown model '{name}': a class of a file or module is written ./cell.py:MyCell or torch.nn:GRU"
                ) from None
            if kind == "task" and ("." in name or "/" in name) and _exists(name):
                raise UsageError(f"unknown task '{name}': your own data is a task if you write array:{name}") from None
            raise unknown(kind, name, self.names(kind)) from None

    def find_all(self, name: str) -> list[Plugin]:
        """Return the plugins or the layer that the user has named, whatever their kinds; "model/lstm" names the kind.

        Raises:
            UsageError: there is no plugin of this kind, or no such layer or data.
        """
        kind, slash, own_name = name.partition("/")
        if slash and kind in KINDS:
            return [self.find(kind, self.named(own_name) if kind == "model" else own_name)]
        if is_own_data(name):
            return [self.find("task", self.named_task(name))]
        if ":" in name:
            return [self.find("model", self.named(name))]
        return [plugin for plugin in self if plugin.name == name]

    def find_any(self, name: str) -> Plugin:
        """Return the one plugin or layer that the user has named (`find_all`).

        Raises:
            UsageError: no plugin has this name, or several have it.
        """
        plugins = self.find_all(name)
        if not plugins:
            raise unknown("task, model or probe", name, {plugin.name for plugin in self})
        if len(plugins) > 1:
            choices = " or ".join(f"{plugin.kind}/{name}" for plugin in plugins)
            raise UsageError(f"several plugins have the name '{name}': write {choices}")
        return plugins[0]

    def load(self, kind: PluginKind, name: str) -> Any:
        """Return the class of a plugin.

        Raises:
            UsageError: no plugin has this name, or it cannot be loaded.
        """
        plugin = self.find(kind, name)
        try:
            return plugin.load()
        except PluginError as error:
            raise UsageError(f"{kind} '{name}' ({plugin.origin}) cannot be used: {error}") from error

    def probes(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the probe classes of a run by name: the default probes, and the probes in `names`.

        Raises:
            UsageError: a probe in `names` is unknown, cannot be loaded, or is a default probe.
        """
        selected = {name: self.load("probe", name) for name in names}
        for name, probe in selected.items():
            if probe.default:
                raise UsageError(f"probe '{name}' is in every run: leave it out")
        selected |= {name: probe for name, probe in self.usable("probe").items() if probe.default}
        return dict(sorted(selected.items()))

    def __iter__(self) -> Iterator[Plugin]:
        return iter(sorted(self._plugins.values(), key=lambda plugin: (KINDS.index(plugin.kind), plugin.name)))


def _exists(name: str) -> bool:
    """Return whether a file or folder has this name; no name is too long to ask."""
    try:
        return Path(name).exists()
    except OSError:
        return False


def registered_names(kind: PluginKind, plugin_class: type) -> list[str]:
    """Return the names under which a class is a plugin; an empty list if it is neither installed nor in a file."""
    package, _, module = plugin_class.__module__.rpartition(".")
    if package in (LOCAL, f"orthobench.{kind}s"):
        return [getattr(plugin_class, "name", module)]
    value = f"{plugin_class.__module__}:{plugin_class.__qualname__}"
    return [point.name for point in _entry_points()[kind] if point.value == value]


def _entry_points() -> dict[PluginKind, tuple[EntryPoint, ...]]:
    """Return the entry points of installed packages that are plugins.

    They are kept, because every package has a file of its own and reading hundreds takes longer than all else here.
    """
    return _entry_points_of(path_state())


@lru_cache(maxsize=1)
def _entry_points_of(_: PathState) -> dict[PluginKind, tuple[EntryPoint, ...]]:
    points = entry_points()
    return {kind: tuple(points.select(group=f"orthobench.{kind}s")) for kind in KINDS}


def _built_in(kind: PluginKind) -> Iterator[Plugin]:
    try:
        package = importlib.import_module(f"orthobench.{kind}s")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"this checkout has no orthobench/{kind}s, a symbolic link: let git create links "
            "(`git config core.symlinks true`, then `git checkout .`)"
        ) from error
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("_"):  # a base class of plugins
            continue
        path = f"{package.__name__}.{module.name}"
        yield Plugin(
            kind,
            module.name,
            BUILT_IN,
            lambda path=path: _only_class(kind, _import(path)),  # type: ignore[misc]
        )


def _installed(kind: PluginKind) -> Iterator[Plugin]:
    for point in _entry_points()[kind]:
        distribution = point.dist.name if point.dist else point.value
        yield Plugin(
            kind,
            point.name,
            distribution,
            lambda point=point: _load_installed(kind, point),  # type: ignore[misc]
            lambda point=point: installed_sources(point),  # type: ignore[misc]
        )


def _load_layer(layer: NamedLayer) -> Any:
    """Return the model of a layer; a class that is a model already is used as it is."""
    from orthobench.foreign.model_of_layer import model_of  # with torch, which the list of plugins does not need

    try:
        cls = quietly(layer.load, layer.name.rpartition(":")[0])
        if inspect.isclass(cls) and issubclass(cls, _base("model")):
            return _checked("model", cls)
        return model_of(cls, layer.name)
    except UsageError as error:
        raise PluginError(str(error)) from error


def _load_installed(kind: PluginKind, point: EntryPoint) -> Any:
    from orthobench.isolation import isolated  # with torch, which the list of plugins does not need

    with isolated():
        plugin_class = _checked(kind, _guarded(point.load))
    _guarded(lambda: installed_sources(point))  # read them now, at the import
    return plugin_class


def _each_once(files: Iterable[Path | Sources]) -> tuple[Sources, ...]:
    """Return the sources of plugin files; a file that is given twice counts once."""
    by_path: dict[Path, Sources] = {}
    for file in files:
        sources = file if isinstance(file, Sources) else read_plugin_file(file)
        by_path.setdefault(Path(sources.path).absolute(), sources)
    return tuple(by_path.values())


def _serve_imports(files: Iterable[Sources]) -> None:
    """Make the modules next to plugin files importable.

    Raises:
        UsageError: two files import different modules of the same name.
    """
    owners: dict[str, Sources] = {}
    for sources in files:
        for name in sources.imported_names:
            first = owners.setdefault(name, sources)
            if first.folder != sources.folder:
                raise UsageError(
                    f"plugin files {first.path} and {sources.path} import different modules of the name {name}: rename "
                    "one of the two"
                )
        serve_modules(sources.folder, sources.imported)


def _from_file(sources: Sources) -> Iterator[Plugin]:
    """Yield the tasks, models and probes in a file; their names come from the attribute `name`, or from the file.

    Raises:
        UsageError: the file cannot be run, defines neither plugin nor layer, or two plugins of the same kind and name.
    """
    from orthobench.isolation import isolated  # with torch, which the list of plugins does not need

    file = Path(sources.path)
    if file.suffix != ".py":
        raise UsageError(f"plugin file {file} is not a Python file: its name should end in .py")
    _refuse_relative_imports(file, sources.main)
    try:
        with isolated():
            module = _guarded(lambda: run_file(file, sources.main))
    except PluginError as error:
        raise UsageError(f"plugin file {file}: {error}") from error
    classes = [(kind, cls) for kind in KINDS for cls in _defined(kind, module)]
    if not classes and _has_layers(module):
        return
    if not classes:
        if unfinished := [cls for kind in KINDS for cls in _derived(kind, module)]:
            missing = "; ".join(f"{cls.__name__} does not define {_missing_methods(cls)}" for cls in unfinished)
            raise UsageError(f"plugin file {file}: {missing}")
        raise UsageError(
            f"plugin file {file} defines no task and no model, nor a probe: derive a class from Task, Model or Probe"
        )
    named: dict[tuple[PluginKind, str], type] = {}
    for kind, cls in classes:
        name = getattr(cls, "name", file.stem)
        first = named.setdefault((kind, name), cls)
        if first is not cls:
            raise UsageError(
                f"plugin file {file}: {first.__name__} and {cls.__name__} are both the {kind} '{name}': set a name of "
                f'its own in each class, such as name = "{cls.__name__.lower()}"'
            )
        yield Plugin(
            kind,
            name,
            str(file),
            lambda kind=kind, cls=cls: _checked(kind, cls),  # type: ignore[misc]
            lambda: sources,
        )


def _has_layers(module: ModuleType) -> bool:
    """Return whether a file defines layers, such as `cell.py:MyCell`, which models name by their class."""
    layer = _base("model").__bases__[0]  # torch.nn.Module
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    return any(inspect.isclass(cls) and issubclass(cls, layer) for cls in own if cls not in _derived("model", module))


def _refuse_relative_imports(file: Path, content: bytes) -> None:
    """Refuse relative imports, which a copied model has, because a plugin file belongs to no package.

    Raises:
        UsageError: the file has one.
    """
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):
        return  # importing the file will explain the error
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            raise UsageError(
                f"plugin file {file}, line {node.lineno}: a plugin file belongs to no package: write absolute imports, "
                "such as from orthobench.models._plain import PlainRNN"
            )


def _owner(plugin: Plugin) -> str:
    return "a built-in one" if plugin.is_built_in else plugin.origin


def _base(kind: PluginKind) -> type:
    base: type = getattr(importlib.import_module(f"orthobench.{kind}"), kind.capitalize())
    return base


def _guarded(load: Callable[[], Any]) -> Any:
    try:
        return load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script may call sys.exit, or raise any error
        raise PluginError(described(error)) from error


def _import(path: str) -> ModuleType:
    module: ModuleType = _guarded(lambda: importlib.import_module(path))
    return module


def _derived(kind: PluginKind, module: ModuleType) -> list[type]:
    """Return the classes of this kind that a module defines, including incomplete ones."""
    base = _base(kind)
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    ]


def _defined(kind: PluginKind, module: ModuleType) -> list[type]:
    return [cls for cls in _derived(kind, module) if not inspect.isabstract(cls)]


def _missing_methods(cls: Any) -> str:
    """Return the names of the abstract methods that a class does not define."""
    return ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))


def _only_class(kind: PluginKind, module: ModuleType) -> Any:
    classes = _defined(kind, module)
    if len(classes) != 1:
        raise PluginError(f"the file should define one {kind}, it defines {len(classes)}")
    return _checked(kind, classes[0])


def _checked(kind: PluginKind, cls: Any) -> Any:
    """Return the class if it is a complete plugin of this kind.

    Raises:
        PluginError: the class has another base class, lacks a method or an attribute, or an attribute is wrong.
    """
    base = _base(kind)
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        raise PluginError(f"{cls!r} is not a class derived from orthobench.{kind}.{base.__name__}")
    if inspect.isabstract(cls):
        raise PluginError(f"it does not define {_missing_methods(cls)}")
    missing = [attribute for attribute in REQUIRED[kind] if not hasattr(cls, attribute)]
    if missing:
        raise PluginError(f"it does not set {', '.join(missing)}")
    plugin: Any = cls
    if kind != "probe" and (wrong := plugin.wrong_attribute()):
        raise PluginError(wrong)
    return cls
