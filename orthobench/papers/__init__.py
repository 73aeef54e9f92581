"""Papers as data: the settings and published results of each experiment, one TOML file per paper.

The settings are defaults of runs. The report shows the published results next to the measured ones.
"""

from __future__ import annotations

from orthobench.papers.paper import Aggregation as Aggregation
from orthobench.papers.paper import Artifact as Artifact
from orthobench.papers.paper import Column as Column
from orthobench.papers.paper import Experiment as Experiment
from orthobench.papers.paper import Paper as Paper
from orthobench.papers.paper import Printed as Printed
from orthobench.papers.paper import Small as Small
from orthobench.papers.paper_study import Study as Study
from orthobench.papers.paper_study import StudyRun as StudyRun
from orthobench.papers.reading import experiments as experiments
from orthobench.papers.reading import find_paper as find_paper
from orthobench.papers.reading import find_study as find_study
from orthobench.papers.reading import papers as papers
from orthobench.papers.reading import read_paper as read_paper
from orthobench.papers.reading import studies as studies
