"""Speech at 8 kHz for the TIMIT experiments: files, spectra, reconstruction and quality."""

from __future__ import annotations

from importlib.util import find_spec

from orthobench.errors import needs_extra

PACKAGES = ("librosa", "pesq", "pystoi", "soundfile")
"""The packages of the [audio] extra. Only functions import them, so that other code runs without them."""


def require_audio() -> None:
    """Check that the packages of the [audio] extra are installed.

    Raises:
        UsageError: a package is missing.
    """
    missing = [name for name in PACKAGES if not _is_installed(name)]
    if missing:
        raise needs_extra("speech", ", ".join(missing), "audio")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
