"""The variants of the papers' experiments are known without torch, and are those of the present code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orthobench.planning import paper_variants
from orthobench.planning.paper import variant_keys
from orthobench.plugins import Catalog

ASK = (
    "import json, sys; from orthobench.planning.paper_variants import paper_variants; "
    "print(json.dumps([paper_variants(), 'torch' in sys.modules]))"
)


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    return variant_keys(Catalog())[0]


def ask(cache: Path) -> dict[str, str]:
    """The variants as a new process with this cache folder knows them; it has not loaded torch."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    variants, loads_torch = json.loads(done.stdout)
    assert not loads_torch
    return variants


@pytest.mark.skipif(sys.platform != "linux", reason="the cache folder has another variable")
def test_process_without_torch_reads_and_caches_the_variants(tmp_path, expected):
    assert ask(tmp_path) == expected
    (file,) = tmp_path.rglob("*.json")
    content = json.loads(file.read_text("utf-8"))
    assert content["variants"] == expected

    some = dict(list(expected.items())[:2])
    file.write_text(json.dumps({**content, "variants": some}), "utf-8")
    assert ask(tmp_path) == some  # of the same code: taken as they are
    for broken in ("[]", "{}", "no JSON", "", json.dumps({"code": "other code", "variants": some})):
        file.write_text(broken, "utf-8")
        assert paper_variants._read(file) is None
    assert ask(tmp_path) == expected
    assert json.loads(file.read_text("utf-8")) == content


def test_variants_are_resolved_without_a_cache_folder(tmp_path, expected):
    occupied = tmp_path / "file"
    occupied.write_text("no folder", "utf-8")
    assert ask(occupied) == expected


def test_variants_are_resolved_in_process_if_none_can_start(monkeypatch, tmp_path, expected):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    assert paper_variants._resolved_elsewhere() == expected


def test_variants_with_torch_equal_those_of_the_classes(expected):
    assert "torch" in sys.modules
    assert paper_variants.paper_variants() == expected
