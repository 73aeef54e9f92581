"""Join the modules of the page's script into one script.

The page has to work from the disk, where it has an opaque origin and cannot import from files next to it. Modules in
data: or blob: addresses would work, but only with a content security policy that allows these addresses, and then any
text that gets into the page could run. One inline script needs only its hash in the policy. A report is written where
Python is, so no bundler of Node.js is called; `make lint` checks the modules as browsers and editors understand them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter

IMPORT = re.compile(r'^import (?:\{([^{}]*)\} from )?"\./(\w+)\.js";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:(?:async )?function\*?|const|class) (\w+))", re.M)
OTHER = re.compile(r"^(?:import|export)\b.*", re.M)


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """Return one script that runs a module and, before it, all modules that it imports.

    Each module is a function with a scope of its own, which returns what the module exports.

    Args:
        entry: the name of the module, without `.js`.
        read: returns the text of the module with a name.

    Raises:
        ValueError: modules import each other, or a module imports or exports in a form that is not supported, such as
            `export let`, because importers would not see a later value.
    """
    texts: dict[str, str] = {}
    imports: dict[str, list[str]] = {}
    found = [entry]
    while found:
        name = found.pop()
        if name not in texts:
            texts[name] = read(name)
            imports[name] = [module for _, module in IMPORT.findall(texts[name])]
            found += imports[name]
    try:
        ordered = list(TopologicalSorter(imports).static_order())
    except CycleError as error:
        raise ValueError(f"modules import each other: {', '.join(error.args[1])}") from None
    parts = "\n".join(_function(name, texts[name]) for name in ordered)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def _function(name: str, text: str) -> str:
    """Return a module as a function that is called; `$name` has what it exports."""
    exports = EXPORT.findall(text)
    body = EXPORT.sub("", IMPORT.sub(_binding, text))
    if other := OTHER.search(body):
        raise ValueError(f"{name}.js has an import or an export in a form that the page cannot have: {other[0]}")
    return f"const ${name} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();"


def _binding(statement: re.Match[str]) -> str:
    """Return the constants that an import stands for; a module that is imported for its effects has none."""
    names, module = statement.groups()
    return "" if names is None else f"const {{{names.replace(' as ', ': ')}}} = ${module};\n"
