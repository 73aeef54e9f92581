"""The CPU back end: kernels in C, compiled when the package is installed, and the functions that call them."""
