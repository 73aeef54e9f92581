"""Send runs to TensorBoard, MLflow, Trackio and Weights & Biases, while they train or from the database.

All numbers come from the database: to a live sink, a run's events only signal that there are new rows to read.
The module of each destination imports its package, so no other module imports them at module level.
"""
