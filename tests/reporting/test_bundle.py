"""The modules of the page's script, joined into one script."""

from __future__ import annotations

from importlib.resources import files

import pytest

from orthobench.reporting import page
from orthobench.reporting.page.bundle import bundle

SCRIPTS = {
    file.name.removesuffix(".js"): file for file in files(page).joinpath("script").iterdir() if ".js" in file.name
}
MODULES = {
    "start": 'import { square, counted as count } from "./sums.js";\nimport "./effect.js";\n'
    "count(); count();\nwindow.result = [square(3), [...window.order], count()];\n",
    "sums": '// Two lines of names.\nimport {\n  log,\n} from "./log.js";\n\nlog("sums");\nlet calls = 0;\n'
    "export function square(x) {\n  return x ** 2;\n}\n\n"
    "export const counted = () => {\n  calls += 1;\n  return calls;\n};\n",
    "effect": 'import { log } from "./log.js";\n\nlog("effect");\n',
    "log": "window.order = [];\nconst square = null;\nexport function log(name) {\n  window.order.push(name);\n}\n",
}


@pytest.mark.browser
def test_each_module_runs_once_before_its_importers_with_names_of_its_own(chromium):
    chromium.get("about:blank")
    chromium.execute_script(bundle("start", MODULES.__getitem__))
    square, order, calls = chromium.execute_script("return window.result")
    assert (square, sorted(order), calls) == (9, ["effect", "sums"], 3)
    assert chromium.execute_script("return typeof square + typeof $sums") == "undefinedundefined"


def test_modules_that_import_each_other_are_refused():
    texts = {name: f'import {{ a }} from "./{other}.js";\nexport const a = 1;\n' for name, other in ("xy", "yx")}
    with pytest.raises(ValueError, match=r"import each other: x, y, x|import each other: y, x, y"):
        bundle("x", texts.__getitem__)


@pytest.mark.parametrize(
    "line",
    [
        "export let state = 1;",  # importers would keep the first value
        "export default function () {}",
        "export { a };",
        'import * as all from "./other.js";',
        'import { a } from "https://elsewhere/x.js";',
        'import { a } from "./other.js"; a();',
    ],
)
def test_unsupported_form_is_refused_with_its_line(line):
    with pytest.raises(ValueError, match=r"x\.js has an import or an export in a form") as caught:
        bundle("x", {"x": f"{line}\n", "other": "export const a = 1;\n"}.__getitem__)
    assert line in str(caught.value)


def test_every_script_is_on_the_live_page_and_only_its_own_part_is_missing_elsewhere():
    def modules(entry: str) -> set[str]:
        found: set[str] = set()

        def read(name: str) -> str:
            found.add(name)
            return SCRIPTS[name].read_text("utf-8")

        bundle(entry, read)
        return found

    assert modules("live") == set(SCRIPTS)
    assert modules("live") - modules("page") == {"live"}
