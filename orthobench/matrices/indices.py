"""Tables of indices that are made once for each size and device."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps

import numpy as np
import torch
from torch import Tensor


def index_table(
    count: Callable[..., int],
) -> Callable[[Callable[..., np.ndarray]], Callable[..., Tensor]]:
    """Turn a function of sizes that returns indices into one of sizes and a device that returns them as a tensor.

    The newest 16 tensors are kept, but none of a program that `torch.export` traces: later calls would get it.

    Args:
        count: the number of indices for these sizes; on the device meta, which has shapes alone, nothing is made.
    """

    def decorate(make: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
        def table(*sizes: int, device: torch.device) -> Tensor:
            if device.type == "meta":
                return torch.empty(count(*sizes), dtype=torch.int64, device=device)
            return torch.from_numpy(make(*sizes)).to(device)

        cached = lru_cache(maxsize=16)(table)

        @wraps(make)
        def tensor(*sizes: int, device: torch.device) -> Tensor:
            return table(*sizes, device=device) if torch.compiler.is_exporting() else cached(*sizes, device=device)

        return tensor

    return decorate
