"""The CUDA back end: kernels in Triton, forms by PyTorch's operations, and the self-tests of both."""
