"""Time a training step of each back end and of PyTorch's own modules, next to the machine's matrix product.

One process measures all rows of a table, interleaved round by round. Because the speed of a shared machine changes
within minutes, only numbers measured side by side can be compared.
"""
