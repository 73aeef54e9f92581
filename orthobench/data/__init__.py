"""Data sets: where they are kept, how they get there, and whether they are what they should be."""

from orthobench.data.dataset import DataSet, Report, data_folder, use_data_folder
from orthobench.data.files import replacing
from orthobench.data.registry import dataset, datasets

__all__ = ["DataSet", "Report", "data_folder", "dataset", "datasets", "replacing", "use_data_folder"]
