"""All generated pages of the site."""

from __future__ import annotations

from functools import cache

from workshop.website.api import api_pages
from workshop.website.commands import command_pages
from workshop.website.figures import READ
from workshop.website.markdown import page
from workshop.website.papers import VERDICTS, overview, paper_pages
from workshop.website.plugins import plugin_pages
from workshop.website.readme import layers_table

REPORT = (
    "[Open the report](../reports/reference.html){ .md-button .md-button--primary }\n\n"
    "It is one file with all runs, tables and figures, and needs no network."
)
FRAME = '<iframe class="report" src="../reports/reference.html" title="The report" loading="lazy"></iframe>'
MATRIX = "".join(f"![Which model solves which task](../matrix-{kind}.svg#only-{kind})" for kind in ("light", "dark"))
LAYERS = (
    "The recurrent layers of torchrecurrent and of PyTorch train here next to orthobench's own models, with 32 units "
    "and three seeds (`checks/comparisons.toml`). Adding with T = 30 and copying with T = 10 take 1,000 iterations. "
    "Parity takes at most 2,000, with words of 3 to 10 symbols in training and of 40 to 256 in the tests. A cell has "
    "the median score over seeds, and the lowest and highest seed. The runs are small and untuned, so a low score may "
    "only mean that a layer learns slowly."
)


@cache
def generated() -> dict[str, str]:
    """Generate the pages, and return their content by path, in the order of the navigation."""
    return {
        "reference/index.md": page(
            "# Reference",
            "These pages are generated from the code whenever the site is built.",
            "\n".join(
                f"* [{title}](../{path}): {about}"
                for title, path, about in (
                    ("Commands", "commands/index.md", "every command with its options"),
                    ("Models", "models/index.md", "equation, settings, paper and results of every model"),
                    ("Tasks", "tasks/index.md", "data, metrics, settings and results of every task"),
                    ("Probes", "probes/index.md", "what can be measured during training"),
                    ("Training", "reference/training.md", "the settings of every run"),
                    ("Python API", "api/index.md", "functions, layers, and the contract of plugins"),
                )
            ),
        ),
        "results/index.md": page(
            "# Results",
            REPORT,
            "## Which model solves which task",
            MATRIX,
            f"<small>{READ}</small>",
            "## Measured versus published",
            VERDICTS,
            overview("../papers/"),
            "## Layers of other packages",
            LAYERS,
            layers_table(),
            "## The report",
            FRAME,
        ),
        **command_pages(),
        **plugin_pages(),
        **api_pages(),
        **paper_pages(),
    }
