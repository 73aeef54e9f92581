"""Pack data for the page into compressed blocks, which its script unpacks when they are needed."""

from __future__ import annotations

import base64
import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from markupsafe import Markup

from orthobench.errors import UsageError
from orthobench.system.strict_json import dump_json


def plotly_script() -> str:
    """Return the script plotly.js from Plotly's package, without importing the package.

    Raises:
        UsageError: the installed Plotly has no script.
    """
    spec = find_spec("plotly")
    folders = spec.submodule_search_locations or [] if spec else []
    # Read as a file, because importing Plotly takes far longer than reading one script.
    for folder in folders:
        file = Path(folder, "package_data", "plotly.min.js")
        if file.is_file():
            return file.read_text("utf-8")
    raise UsageError("Plotly has no file plotly.min.js: `pip install --force-reinstall plotly`")


def block(name: str, content: bytes) -> Markup:
    """Return an inert script element with compressed bytes in base64; `name` has only letters, digits and hyphens."""
    # Without a time, because the same data should give the same page; base64, because HTML cannot hold bytes.
    packed = base64.b64encode(gzip.compress(content, compresslevel=7, mtime=0)).decode()
    return Markup(f'<script type="text/plain" id="data-{name}">{packed}</script>')


def json_block(name: str, value: Any) -> Markup:
    """Return a block of JSON, with null for numbers that are not finite."""
    return block(name, dump_json(value, separators=(",", ":"), default=str).encode())


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
