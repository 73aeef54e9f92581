"""Options of earlier versions, and the options that replaced them."""

from __future__ import annotations

REPLACED = {
    "report": {
        f"--{form}": f"--format {form}" for form in ("csv", "json", "markdown", "latex", "png", "pdf", "reproduction")
    },
}
"""By command and option, the new spelling."""


def replacement(command: str, option: str) -> str:
    """Return the sentence that names the new spelling of an option; empty if the option was never one."""
    new = REPLACED.get(command, {}).get(option.partition("=")[0], "")
    return f"{option} is now {new}: orthobench {command} {new}" if new else ""
