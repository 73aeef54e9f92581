from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def mlflow_template(tmp_path_factory) -> Path:
    """A new database of MLflow: to make one takes ten seconds."""
    pytest.importorskip("mlflow", reason="the extra orthobench[mlflow] is not installed")
    from orthobench.sinks.mlflow import MLflow

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MLflow(f"sqlite:///{file}")
    return file


@pytest.fixture(params=["tensorboard", "mlflow", "trackio", "wandb"])
def kind(request) -> str:
    """Each destination whose package is installed."""
    pytest.importorskip(request.param, reason=f"the extra orthobench[{request.param}] is not installed")
    return request.param


@pytest.fixture
def location(kind, tmp_path, request) -> Path:
    """An empty folder of this destination."""
    folder = tmp_path / "logs"
    folder.mkdir()
    if kind == "trackio":  # it takes its folder from the environment when it is imported
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.setenv("TRACKIO_DIR", str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == "trackio" or name.endswith("sinks.trackio")]:
            monkeypatch.delitem(sys.modules, name)
    if kind == "mlflow":
        shutil.copy(request.getfixturevalue("mlflow_template"), folder / "mlflow.db")
    return folder
