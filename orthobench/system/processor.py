"""The processor: its name and its model, by which the speeds of machines are told apart."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def machine_name(facts: Mapping[str, Any]) -> str:
    """Return the name of the accelerator, or of the processor without one (`processor_name`)."""
    return str(facts.get("accelerator") or processor_name(facts))


def processor_name(facts: Mapping[str, Any]) -> str:
    """Return the name of the processor with its family, model and stepping, such as "AMD EPYC (26/2/1)".

    These belong to it, because virtual machines give processors of very different speeds one name.
    """
    numbers = facts.get("cpu_model")
    return str(facts.get("cpu") or "unknown processor") + (f" ({numbers})" if numbers else "")


def cpu_name() -> str:
    return _cpu_facts().get("model name") or platform.processor() or platform.machine()


def cpu_model() -> str | None:
    """Return the processor's family, model and stepping, such as 6/143/8, or None: virtual machines share names."""
    facts = _cpu_facts()
    numbers = [facts.get(name) for name in ("cpu family", "model", "stepping")]
    return "/".join(number for number in numbers if number) or None


def _cpu_facts() -> dict[str, str]:
    """Return what Linux reports about the first processor; empty on other systems."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
