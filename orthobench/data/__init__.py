"""Data sets: their folders, downloads, imports and checksums."""

from orthobench.data.dataset import DataSet, Report, data_folder, use_data_folder
from orthobench.data.registry import dataset, datasets

__all__ = ["DataSet", "Report", "data_folder", "dataset", "datasets", "use_data_folder"]
