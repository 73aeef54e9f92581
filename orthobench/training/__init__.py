"""Train one run: trainer, lifecycle, batches, events, checkpoints, locks, profiling, optimisers."""
