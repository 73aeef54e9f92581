"""Where to send runs, written as `tensorboard[:DIR]`, `mlflow[:DIR|URI]`, `trackio[:DIR]` or `wandb[:DIR]`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from orthobench.errors import UsageError, needs_extra, unknown
from orthobench.sinks.destination import Destination
from orthobench.system.kinds import refuse_file
from orthobench.system.location import Location, Place, from_home, variable

SinkKind = Literal["tensorboard", "mlflow", "trackio", "wandb"]
SINK_KINDS: tuple[SinkKind, ...] = ("tensorboard", "mlflow", "trackio", "wandb")
DEFAULT_LOCATIONS: dict[SinkKind, str] = {
    "tensorboard": "runs",
    "mlflow": "sqlite:///mlflow.db",
    "trackio": "trackio",
    "wandb": ".",
}
"""The default location of each tool."""
QUIET: dict[SinkKind, dict[str, str]] = {
    "tensorboard": {},
    "mlflow": {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    },
    "trackio": {"HF_HUB_DISABLE_TELEMETRY": "1"},
    "wandb": {"WANDB_ERROR_REPORTING": "false"},
}
"""Environment variables to set unless they are set: no telemetry, and short waits for a server."""


@dataclass(frozen=True)
class Target:
    """A destination, given by name and location.

    Attributes:
        location: a folder; for MLflow also a tracking URI.
    """

    kind: SinkKind
    location: Location

    def __str__(self) -> str:
        return f"{self.kind}:{self.location}"

    def open(self) -> Destination:
        """Load the package and return the destination.

        Raises:
            Exception: the package is broken, or the location cannot be used.
        """
        for name, value in QUIET[self.kind].items():
            os.environ.setdefault(name, value)  # the packages read them on import
        if self.kind == "tensorboard":
            from orthobench.sinks.tensorboard import TensorBoard

            return TensorBoard(Path(self.location.real))
        if self.kind == "mlflow":
            from orthobench.sinks.mlflow import MLflow

            return MLflow(self.location.real)
        if self.kind == "trackio":
            os.environ["TRACKIO_DIR"] = str(Path(self.location.real).absolute())
            from orthobench.sinks.trackio import Trackio

            return Trackio(Path(self.location.real))
        from orthobench.sinks.wandb import WeightsAndBiases

        return WeightsAndBiases(Path(self.location.real))


def parse_target(place: Place) -> Target:
    """Read a destination, such as "tensorboard" or "mlflow:http://host:5000".

    Raises:
        UsageError: the name is unknown, its package is not installed, or the folder is a file.
    """
    text = Location.of(place).real
    name, colon, location = text.partition(":")
    if name not in SINK_KINDS:
        raise unknown("destination", name, SINK_KINDS)
    if colon and not location:
        raise UsageError(f"'{text}' names no folder: write {name}:DIR, or {name} alone")
    kind = name
    if find_spec(kind) is None:
        raise needs_extra(kind, "a package that is not installed", kind)
    if not location:
        given = {"mlflow": variable("MLFLOW_TRACKING_URI"), "trackio": variable("TRACKIO_DIR")}
        location = given.get(kind) or DEFAULT_LOCATIONS[kind]
    elif kind == "mlflow" and ":" not in location:
        refuse_file(Path(from_home(location)))
        location = f"sqlite:///{location.rstrip('/')}/mlflow.db"
    location = from_home(location)
    if kind != "mlflow":
        refuse_file(Path(location))
    return Target(kind, Location(location))
