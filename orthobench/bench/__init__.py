"""How fast a training step is here: our back ends, PyTorch's own means, and the machine's matrix product.

Everything of a table is measured in one process and interleaved, round by round: the speed of a shared machine changes
within minutes, and only what was measured side by side can be compared.
"""
