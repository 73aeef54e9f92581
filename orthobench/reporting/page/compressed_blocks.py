"""Pack data for the page into compressed blocks, which its script unpacks when they are needed."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from orthobench.system.strict_json import dump_json

PLOTLY = "plotly/plotly-cartesian.min.js.gz"
"""The bundle of plotly.js for charts with two axes, as npm has it in plotly.js-cartesian-dist-min.

It has a third of the size of the whole library, which is all that Plotly's Python package contains.
"""


@cache
def plotly_script() -> str:
    """Return the text of plotly.js."""
    return gzip.decompress(_compressed_plotly()).decode()


def plotly_block() -> Markup:
    """Return the block of plotly.js."""
    return _block("plotly", _compressed_plotly())


@cache
def _compressed_plotly() -> bytes:
    return files(__package__).joinpath(PLOTLY).read_bytes()


def json_block(name: str, value: Any) -> Markup:
    """Return a block of JSON, with null for numbers that are not finite; `name` has letters, digits and hyphens."""
    content = dump_json(value, separators=(",", ":"), default=str).encode()
    return _block(name, gzip.compress(content, compresslevel=8, mtime=0))  # without a time: equal data, equal pages


def _block(name: str, packed: bytes) -> Markup:
    """Return an inert script element with gzip in base64, because HTML cannot hold bytes."""
    return Markup(f'<script type="text/plain" id="data-{name}">{base64.b64encode(packed).decode()}</script>')


def digest(script: str) -> str:
    """Return the hash by which a content security policy names a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def policy(scripts: list[str], fetches: bool = False) -> str:
    """Return the page's content security policy: only these scripts run, and nothing is fetched.

    Inline styles are allowed because Plotly creates some.

    Args:
        fetches: the scripts may fetch from the page's own server.
    """
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(digest, scripts))}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            *(["connect-src 'self'"] if fetches else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
