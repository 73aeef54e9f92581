"""Time a training step by each back end, by PyTorch's own modules, and beside them the machine's matrix product.

One process measures all rows of a table, interleaved round by round. The speed of a shared machine changes within
minutes, so only numbers measured side by side can be compared.
"""
