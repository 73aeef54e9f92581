"""Write the page: one HTML file with the data, the figures and the scripts that draw them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from orthobench.errors import UsageError
from orthobench.papers import Study
from orthobench.reporting.account.abilities import questions
from orthobench.reporting.account.account import Account, account_of, compute_account
from orthobench.reporting.account.commentary import NONE, Commentary
from orthobench.reporting.account.contents import Contents
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.account.studies import find_result
from orthobench.reporting.figures.styles import PALETTE, Styles
from orthobench.reporting.page.compressed_blocks import json_block, plotly_block, plotly_script, policy
from orthobench.reporting.page.drawings import Drawings, draw
from orthobench.reporting.page.run_records import points_for, run_details, run_index, sweep_records
from orthobench.reporting.page.search_data import search_record
from orthobench.reporting.page.templates import environment
from orthobench.store import Store
from orthobench.system.cycles import without_cycle_search
from orthobench.system.files import write_bytes
from orthobench.system.kinds import refuse_other_kinds
from orthobench.version import __version__

FIRST_SCRIPT = 'document.documentElement.dataset.script = "";'
"""Hides what a page without scripts says, before the browser shows it. A server's policy may forbid all inline scripts,
and then neither `noscript` nor the query `scripting` of CSS tells."""


def write_html(
    store: Store, out: Path, scope: Scope, variant_keys: Mapping[str, str], commentary: Commentary = NONE
) -> Path:
    """Write the page and return its path; a scope with conditions shows no studies.

    Args:
        variant_keys: the variant of each experiment's runs, by the experiment's identity; only these runs are shown as
            the paper's.
        commentary: the author's text and remarks, which the page shows.

    Raises:
        UsageError: no run is in scope, the file cannot be written, the paper is unknown, or a remark is about nothing.
    """
    page, _ = build_page(store, scope, variant_keys, commentary=commentary)
    write_whole(out, page.encode(), "HTML")
    return out.resolve()


@without_cycle_search()
def build_page(
    store: Store,
    scope: Scope,
    variant_keys: Mapping[str, str],
    sweeps: Sequence[Mapping[str, Any]] | None = None,
    commentary: Commentary = NONE,
) -> tuple[str, Contents]:
    """Return the text of the page and its contents.

    Args:
        variant_keys: as for `write_html`; also `commentary`.
        sweeps: the sweeps that train now (`running_sweeps`), on a page that a server updates.

    Raises:
        UsageError: no run is in scope, the paper is unknown, or a remark is about nothing.
    """
    account = compute_account(store, scope, variant_keys, commentary)
    return _page(account, sweeps), account.contents


def empty_page(sweeps: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the page of a database that does not exist yet, which a server renews; `sweeps` as for `build_page`."""
    return _page(account_of([], [], []), sweeps)


def write_study(store: Store, out: Path, study: Study) -> Path:
    """Write the page of one study, and return its path.

    Raises:
        UsageError: the file cannot be written.
    """
    result = find_result(store, study)
    account = account_of([], [], [result] if result else [])
    write_whole(out, _page(account).encode(), "HTML")
    return out.resolve()


def write_whole(out: Path, content: bytes, kind: str) -> None:
    """Write or replace a file of a report, creating its folder if necessary.

    Args:
        kind: the kind of file, as in `orthobench.system.kinds.KINDS`.

    Raises:
        UsageError: the file cannot be written, or an existing file is of another kind.
    """
    refuse_other_kinds(out, kind)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out, content)
    except OSError as error:
        raise UsageError(f"report {out} cannot be written: {error.strerror}; name another file with `out`") from error


def _page(account: Account, sweeps: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Draw an account, pack the data of its page, and fill in the templates."""
    drawn, points = draw(account), points_for(len(account.runs))
    blocks = [
        plotly_block(),
        *_indexes(account, drawn.styles, sweeps or ()),
        *(part.block for part in drawn.parts.values()),
        *(json_block(f"runs-{each.key}", run_details(each, points)) for each in account.conditions),
        json_block("about", account.plugins),
        *([json_block("abilities", questions(account.abilities))] if account.abilities else []),
    ]
    return _render(account, drawn, blocks, is_live=sweeps is not None)


def _render(account: Account, drawn: Drawings, blocks: Sequence[Markup], is_live: bool) -> str:
    script = _resource("script.min.js")
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            account=account,
            drawn=drawn,
            blocks=blocks,
            policy=policy([FIRST_SCRIPT, plotly_script(), script], fetches=is_live),
            first_script=Markup(FIRST_SCRIPT),
            css=Markup(_resource("page.css")),
            js=Markup(script),
            created_at=datetime.now(UTC),
            version=__version__,
        )
    )


def _indexes(account: Account, styles: Styles, sweeps: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """Return the index of runs, and their environments."""
    index = {
        **run_index(account, styles),
        **account.own_models,
        "palette": PALETTE,
        "appearances": account.appearances,
        "searches": [search_record(search) for search in account.searches],
        "sweeps": sweep_records(sweeps, account.runs),
    }
    environments = {run.environment.digest: run.environment.flat_facts for run in account.runs}
    return [json_block("index", index), json_block("environments", environments)]


@functools.cache
def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
