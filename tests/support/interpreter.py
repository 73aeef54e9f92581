"""Run tests of the CUDA kernels in Triton's interpreter, which must be chosen before Triton is imported."""

import os
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from support import cuda_stub

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_GPU = torch.cuda.is_available() and not INTERPRETED


def version(text: str) -> tuple[int, ...]:
    """The first two parts of a version."""
    return tuple(int(part) for part in text.split(".")[:2])


def run_interpreted(file: str, marker: str, environment: Mapping[str, str] = os.environ) -> None:
    """Run the marked tests of a file in a process whose kernels are interpreted on the CPU; they should pass."""
    triton = pytest.importorskip("triton")
    if version(triton.__version__) < (3, 8) and version(np.__version__) >= (2, 4):
        pytest.skip("this Triton's interpreter needs an older NumPy")
    # NumPy stands for the GPU there. It warns of overflow and NaN where a GPU does not, and older interpreters use
    # what it deprecates.
    ignored = [f"-Wignore::{warning}" for warning in ("RuntimeWarning", "DeprecationWarning")]
    arguments = ("-m", "pytest", file, "-m", marker, "-p", "no:cacheprovider", *ignored)
    cuda_stub.run({**environment, "TRITON_INTERPRET": "1"}, *arguments)
