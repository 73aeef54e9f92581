"""What a tuned comparison tries of linear cells whose step may reflect."""

from __future__ import annotations

from orthobench.model import SecondAxis

EIGENVALUES = SecondAxis(
    ({"negative_eigenvalues": False}, {"negative_eigenvalues": True}),
    "Grazzi et al., ICLR 2025: without negative eigenvalues it cannot follow parity at every length",
)
