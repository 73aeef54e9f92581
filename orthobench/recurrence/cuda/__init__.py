"""The CUDA back end: kernels in Triton and CUDA C++, forms by PyTorch's operations, and the self-tests of both."""
