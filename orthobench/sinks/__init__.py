"""Send runs to TensorBoard, MLflow and Weights & Biases: live while they train, or from the database.

The database is the source of every number. A live sink receives a run's events only as the sign to read new rows.
`tensorboard.py`, `mlflow.py` and `wandb.py` import their packages, so nothing else imports these modules at its top.
"""
