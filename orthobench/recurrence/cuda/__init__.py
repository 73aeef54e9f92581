"""The CUDA back end: kernels in Triton or from PyTorch's operations, and the self-tests of both."""
