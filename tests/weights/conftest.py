"""The database of a test's runs."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "r.db")
