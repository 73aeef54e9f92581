"""Send runs to TensorBoard, MLflow and Weights & Biases, either live while they train or from the database.

All numbers come from the database: to a live sink, a run's events only signal that there are new rows to read.
`tensorboard.py`, `mlflow.py` and `wandb.py` import their packages, so no other module imports them at module level.
"""
