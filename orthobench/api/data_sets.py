"""The data sets, whether they are here, and where they come from."""

from __future__ import annotations

from typing import Any

from orthobench.data.registry import dataset as dataset
from orthobench.data.registry import datasets as datasets


def listed() -> list[dict[str, Any]]:
    """Return the data sets as JSON values; the bytes are those of the files that are here, or else of a download."""
    return [
        {
            "name": name,
            "title": each.title,
            "here": each.present(),
            "folder": str(each.folder()),
            "bytes": sum(file.stat().st_size for file in each.folder().rglob("*") if file.is_file()) or each.size,
            "download": bool(each.downloads),
            "licence": each.licence,
            "home": each.home,
        }
        for name, each in datasets().items()
    ]
