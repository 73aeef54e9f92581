"""The CPU back end: kernels in C, compiled on first use, and the functions that call them."""
