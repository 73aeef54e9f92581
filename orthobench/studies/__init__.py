"""The papers' studies of what happens inside the models: what each needs and what its paper's figure shows, as data.

A study is carried out by `orthobench study`; its figures are drawn by `orthobench.report`.
"""

from orthobench.studies.listed import LSTM_SECONDS, STUDIES, find
from orthobench.studies.study import Study, StudyRun

__all__ = ["LSTM_SECONDS", "STUDIES", "Study", "StudyRun", "find"]
