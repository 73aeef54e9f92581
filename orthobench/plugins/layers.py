"""Find layers of other programs by name, and collect their source code.

| name | the layer |
| --- | --- |
| `torch.nn:GRU`, `mylab.cells:FastCell` | a class of a module, installed or in the current folder |
| `./cell.py:MyCell` | a class of a file; its name is `cell.py:MyCell` |
| `notebook:MyCell` | a class of the notebook or script that called orthobench |

Code that is not installed is carried to the workers like a plugin file, and its text is what they run. A class of a
notebook is carried as a small module: its own text, and that of everything in the notebook that it uses.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import inspect
import io
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from orthobench.errors import UsageError, unknown
from orthobench.plugins.loading import (
    LOCAL,
    MemoryLoader,
    PathState,
    PluginFinder,
    path_state,
    run_file,
    serve_modules,
)
from orthobench.plugins.notebook import notebook_module
from orthobench.plugins.sources import Sources, imports_of, named_files, read_plugin_file
from orthobench.system.location import from_home
from orthobench.system.own_code import described

NOTEBOOK = "notebook"
"""What stands before the colon in the name of a class of the main program."""

ADAPTER = """\
import torch
from theirs import Theirs


class Adapted(torch.nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.front = torch.nn.Linear(input_size, hidden_size)
        self.inner = Theirs(hidden_size, heads=4)  # takes and returns [batch, hidden_size, time]

    def forward(self, x):  # [time, batch, input_size]
        outputs = self.inner(self.front(x).permute(1, 2, 0))
        return outputs.permute(2, 0, 1)  # [time, batch, hidden_size]
"""
"""A class that gives a layer another constructor, other inputs and other outputs."""

_logger = logging.getLogger("orthobench")


@dataclass(frozen=True)
class NamedLayer:
    """A layer by name.

    Attributes:
        sources: its source code.
        load: returns the class, and raises any error of its code.
    """

    name: str
    sources: Sources
    load: Callable[[], Any]


def is_layer(name: str) -> bool:
    """Return whether a model's name is that of a layer."""
    return ":" in name


def find_layer(named: Any, files: tuple[Sources, ...] = ()) -> NamedLayer:
    """Return the layer of a name or a class.

    Args:
        files: the user's plugin files, which may define it.

    Raises:
        UsageError: there is no such module, file or class, or its code cannot be run.
    """
    if inspect.isclass(named):
        return _of_class(named)
    where, _, name = named.rpartition(":")
    if not name.isidentifier() or not where:
        raise UsageError(f"'{named}' names no layer: write torch.nn:GRU, mypackage.cells:MyCell or ./cell.py:MyCell")
    if where == NOTEBOOK:
        return _of_notebook(getattr(sys.modules["__main__"], name, None), name)
    if where.endswith(".py"):
        return _of_file(where, name, files)
    return _of_module(where, name)


def without_folder(model: str) -> str:
    """Return the name of a model for the word by which `run` takes it, such as `./cells/cell.py:MyCell`."""
    file, of_file, layer = model.rpartition(".py:")
    return f"{Path(file).name}{of_file}{layer}" if of_file else model


def carried_layer(sources: Sources) -> NamedLayer:
    """Return the layer whose text is in the sources, perhaps of another process."""
    return NamedLayer(sources.layer, sources, lambda: _run(sources))


_LOADED: dict[tuple[str, str], tuple[Any, dict[Path, tuple[int, int] | None]]] = {}
"""The classes whose text has been run, by name and revision, with the files that it names as its data."""
_SERVED: dict[Path, dict[str, bytes]] = {}
"""The modules of these classes by folder, because another layer of a package may import others of its modules."""


def _run(sources: Sources) -> Any:
    """Run the text of a layer, and return its class; equal texts run once."""
    known = _LOADED.get((sources.layer, sources.revision))
    if known is not None and known[1] == _times(known[1]):
        return known[0]
    where, _, name = sources.layer.rpartition(":")
    if where == NOTEBOOK or where.endswith(".py"):
        serve_modules(sources.folder, sources.imported)
        module = run_file(Path(sources.path), sources.main)
    else:
        served = _SERVED[sources.folder] = {**_SERVED.get(sources.folder, {}), **sources.contents}
        serve_modules(sources.folder, served)
        module = importlib.import_module(where)
    cls = _attribute(module, name, where)
    _LOADED[sources.layer, sources.revision] = cls, _times(named_files(cls, sources))
    return cls


def _times(files: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    """Return the time of the last change and the size of each file; None for a file that is gone."""
    return {file: (file.stat().st_mtime_ns, file.stat().st_size) if file.exists() else None for file in files}


def _attribute(module: ModuleType, name: str, where: str) -> Any:
    """Return a class of a module.

    Raises:
        UsageError: there is none, in which case the message has the nearest names.
    """
    if hasattr(module, name):
        return getattr(module, name)
    is_class = {each for each, value in vars(module).items() if inspect.isclass(value) and not each.startswith("_")}
    raise unknown(f"class of {where}", name, difflib.get_close_matches(name, is_class, n=2) or sorted(is_class)[:20])


def quietly(load: Callable[[], Any], what: str) -> Any:
    """Run somebody's code without its output.

    Raises:
        UsageError: it raises an error, or exits; one line.
    """
    from orthobench.isolation import isolated  # with torch, which the names of layers do not need

    printed = io.StringIO()
    try:
        with isolated(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            value = load()
    except (KeyboardInterrupt, UsageError):
        raise
    except BaseException as error:  # a module may exit
        raise UsageError(f"{what} cannot be imported: {described(error)}") from error
    if text := printed.getvalue().strip():
        _logger.warning("%s prints when it is imported: %s", what, text.splitlines()[0][:80])
    return value


def _of_class(cls: type) -> NamedLayer:
    """Return the layer of a class object, under its shortest name."""
    name = cls.__qualname__
    if not name.isidentifier():
        raise UsageError(f"{name} is defined inside a function or class: define it at the top of a module or notebook")
    if cls.__module__ == "__main__":
        return _of_notebook(cls, name)
    if cls.__module__.startswith(f"{LOCAL}."):
        raise UsageError(f"{name} comes from a plugin file: write its name, such as 'cell.py:{name}'")
    return _of_module(cls.__module__, name, cls)


def _of_notebook(cls: Any, name: str) -> NamedLayer:
    if not inspect.isclass(cls):
        raise UsageError(
            f"{NOTEBOOK}:{name} was a class of a notebook or script: call orthobench there, or write it to a file"
        )
    path = f"{NOTEBOOK}/{name}.py"
    sources = Sources({f"{name}.py": notebook_module(cls).encode()}, path=path, layer=f"{NOTEBOOK}:{name}")
    return carried_layer(sources)


def _of_file(path: str, name: str, files: tuple[Sources, ...]) -> NamedLayer:
    path = from_home(path)
    given = [each for each in files if Path(each.path).name == path and not each.layer]
    if not given and not Path(path).is_file():
        raise UsageError(
            f"there is no file {path} here: give its path, as in ./folder/{Path(path).name}:{name}, or by `plugins`"
        )
    found = given[0] if given else read_plugin_file(Path(path))
    sources = Sources(found.contents, path=found.path, layer=f"{Path(path).name}:{name}")
    return carried_layer(sources)


def _of_module(where: str, name: str, cls: type | None = None) -> NamedLayer:
    """Return the layer of a module's class; the class is given, or imported.

    Raises:
        UsageError: the module or class does not exist, or cannot be imported.
    """
    top = where.partition(".")[0]
    if cls is None:
        spec = _spec(top)
        if spec is None:
            raise UsageError(f"there is no package '{top}' here: install it, or go to the folder that contains it")
        if _is_local(top, spec) and not _is_imported(top):
            return _local(where, name, _root(spec), None)
        cls = quietly(lambda: _attribute(importlib.import_module(where), name, where), where)
    if not inspect.isclass(cls):
        raise UsageError(f"{where}:{name} is not a class derived from torch.nn.Module")
    module = sys.modules[cls.__module__]
    public = _shortest(cls, where)
    file = getattr(module, "__file__", None)
    if file is None:
        raise UsageError(f"{public}:{name} has no source code, by which a run could be identified: write it to a file")
    if found := _distribution(top, Path(file)):
        return NamedLayer(f"{public}:{name}", _installed(cls, found), lambda: cls)
    return _local(public, name, _root_of(module, Path(file)), cls)


def _spec(top: str) -> ModuleSpec | None:
    """Return where a top-level module is: on the path of this process, or in the current folder."""
    for finder in sys.meta_path:
        # Ours is left out, because it would find the text that an earlier layer has served.
        if not isinstance(finder, PluginFinder) and (spec := finder.find_spec(top, None)):
            return spec
    # The current folder by name, because the path of an installed command does not contain it.
    return PathFinder.find_spec(top, [str(Path.cwd())])


def _is_imported(top: str) -> bool:
    """Return whether the program itself has imported a package, or a part of it."""
    loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] == top]
    return any(
        getattr(module, "__file__", None) and not isinstance(module.__loader__, MemoryLoader) for module in loaded
    )


def _root(spec: ModuleSpec) -> Path:
    """Return the folder that contains a top-level module."""
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).absolute().parent
    return Path(spec.origin or "").absolute().parent


def _is_local(top: str, spec: ModuleSpec) -> bool:
    """Return whether a module is neither installed nor part of Python or of orthobench."""
    if top in sys.stdlib_module_names or top == "orthobench" or not (spec.origin or spec.submodule_search_locations):
        return False
    return _distribution(top, _root(spec) / top / "__init__.py") is None


def _root_of(module: ModuleType, file: Path) -> Path:
    """Return the folder from which a module has been imported."""
    depth = module.__name__.count(".") + (file.name == "__init__.py")
    return file.absolute().parents[depth]


def _distribution(top: str, file: Path) -> Distribution | None:
    """Return the installed distribution to which a file belongs; None for a folder's own and for editable packages."""
    for names in (lambda: (top,), lambda: distributions_of_packages().get(top, ())):
        for name in names():
            with contextlib.suppress(PackageNotFoundError):
                found = distribution(name)
                folder = Path(str(found.locate_file(""))).absolute()
                if found.read_text("RECORD") is not None and folder in file.absolute().parents:
                    return found
    return distribution("orthobench") if top == "orthobench" else None


def distributions_of_packages() -> Mapping[str, Sequence[str]]:
    """Return the distributions of each top-level package, as `packages_distributions` does."""
    return _distributions_in(path_state())


@lru_cache(maxsize=1)  # because reading every package takes a second
def _distributions_in(_: PathState) -> Mapping[str, Sequence[str]]:
    return packages_distributions()


def _shortest(cls: type, where: str) -> str:
    """Return the outermost module that has the class under its own name: torch.nn for torch.nn.modules.rnn."""
    parts = where.split(".")
    for length in range(1, len(parts)):
        module = sys.modules.get(".".join(parts[:length]))
        if getattr(module, cls.__qualname__, None) is cls:
            return ".".join(parts[:length])
    return where


_AT_IMPORT: dict[type, Sources] = {}
"""The code of installed classes when they were first used, because later edits do not change code in memory."""


def _installed(cls: type, found: Distribution) -> Sources:
    """Return the code of an installed class: its module, and the modules of its own package that this imports.

    Of torch and orthobench, whose modules import nearly all others, only those of the class and its bases count.
    """
    if cls not in _AT_IMPORT:
        top = cls.__module__.partition(".")[0]
        names = dict.fromkeys(base.__module__ for base in cls.__mro__ if base.__module__.split(".")[0] == top)
        contents: dict[str, bytes] = {}
        for name in names:
            module = sys.modules[name]
            file = Path(module.__file__ or "")
            if name == "torch.nn.modules.module" or file.suffix != ".py":
                continue
            root = _root_of(module, file)
            if top in ("torch", "orthobench"):
                contents[file.relative_to(root).as_posix()] = file.read_bytes()
            else:
                contents |= reached(root, name, own_package=True)
        _AT_IMPORT[cls] = Sources(contents, distribution=found.name, version=found.version)
    return _AT_IMPORT[cls]


def _local(where: str, name: str, root: Path, cls: type | None) -> NamedLayer:
    """Return the layer of a module that is not installed.

    Args:
        root: the folder that contains its top-level module.
        cls: the class, if it has been imported; else its text is run.

    Raises:
        UsageError: there is no such module, or its text has changed since it was imported.
    """
    contents = reached(root, cls.__module__ if cls else where, own_package=False)
    if cls is not None and cls.__module__ != where:
        contents |= {
            path: text for path, text in reached(root, where, own_package=False).items() if path not in contents
        }
    if not contents:
        raise UsageError(f"there is no module {where} in {root}: check its name")
    sources = Sources(contents, path=str(root / next(iter(contents))), layer=f"{where}:{name}")
    if cls is None:
        return carried_layer(sources)
    for path, text in contents.items():
        module = sys.modules.get(_module_name(path))
        if module is not None and not _is_current(module, text):
            raise UsageError(
                f"{root / path} has changed since it was imported: reload {module.__name__}, or start Python again"
            )
    return NamedLayer(sources.layer, sources, lambda: cls)


def _module_name(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_current(module: ModuleType, text: bytes) -> bool:
    """Return whether the functions of a module in memory are those of a text."""
    try:
        # Without inheriting, because the `__future__` import of this file would count for the other text, too.
        codes = {code.co_qualname: code for code in _codes(compile(text, "", "exec", dont_inherit=True))}
    except (SyntaxError, ValueError):
        return False
    members = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    members += [value for cls in members if inspect.isclass(cls) for value in vars(cls).values()]
    functions = [inspect.unwrap(value) for value in members if isinstance(value, FunctionType)]
    own = [function.__code__ for function in functions if function.__module__ == module.__name__]
    return all(code == codes[code.co_qualname] for code in own if code.co_qualname in codes)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def reached(root: Path, module: str, own_package: bool) -> dict[str, bytes]:
    """Return the files of a module and of the modules that it imports from the same folder, by relative path.

    Args:
        root: the folder that contains the top-level module.
        own_package: follow only imports of modules of its own package, and leave out the `__init__.py` above them, as
            the packages are installed. Otherwise every file that Python would run from this folder counts.
    """
    top = module.partition(".")[0]
    files: dict[str, bytes] = {}
    waiting, seen = [module], {"orthobench", *sys.stdlib_module_names}
    while waiting:
        name = waiting.pop(0)
        if name in seen or name.partition(".")[0] in seen - {top}:
            continue
        seen.add(name)
        file = _file_of(root, name)
        if not own_package and "." in name:
            waiting.append(name.rpartition(".")[0])
        if file is None:
            continue
        content = file.read_bytes()
        files[file.relative_to(root).as_posix()] = content
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for imported in imports_of(content, package):
            if not own_package or imported.partition(".")[0] == top:
                waiting.append(imported if _file_of(root, imported) else imported.rpartition(".")[0] or imported)
    return files


def _file_of(root: Path, module: str) -> Path | None:
    """Return the file of a module; None if the folder has none."""
    stem = root.joinpath(*module.split("."))
    for file in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
        if module and file.is_file():
            return file
    return None


def classes_of(where: str) -> list[str]:
    """Return the classes of a module or file that may be layers, by its text alone; nothing is imported."""
    if where.endswith(".py"):
        file: Path | None = Path(from_home(where))
    else:
        where = "torch.nn.modules.rnn" if where == "torch.nn" else where
        top = where.partition(".")[0]
        spec = _spec(top) if top.isidentifier() else None
        file = None if spec is None else _file_of(_root(spec), where)
    try:
        body = ast.parse(file.read_bytes()).body if file else []
    except (OSError, SyntaxError, ValueError):
        return []
    names = [node.name for node in body if isinstance(node, ast.ClassDef) and node.bases]
    for node in body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            with contextlib.suppress(ValueError):
                names = list(ast.literal_eval(node.value))
    return [name for name in names if not name.startswith("_") and not name.endswith("Base")]
