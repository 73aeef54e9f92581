"""Kernels of cells that users write: one step in PyTorch becomes C for the driver of `cpu/cell.h`.

`trace` records a step, and `plan` divides it into the phases of the driver. `gradient` differentiates it and chooses
what to save, `text` writes it in C, and `build` compiles it. `cuda_text` writes it for a GPU, where NVRTC compiles it.
`kernel` runs it, and `cell` decides whether it does.
"""
