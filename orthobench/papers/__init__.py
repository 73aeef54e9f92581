"""Papers as data: the settings and published results of each experiment, one TOML file per paper.

The settings are defaults of runs. The report shows the published results next to the measured ones.
"""

from orthobench.papers.aggregation import Aggregation as Aggregation
from orthobench.papers.aggregation import Selection as Selection
from orthobench.papers.reading import experiments as experiments
from orthobench.papers.reading import find_paper as find_paper
from orthobench.papers.reading import find_study as find_study
from orthobench.papers.reading import papers as papers
from orthobench.papers.reading import studies as studies
from orthobench.papers.records import Artifact as Artifact
from orthobench.papers.records import Column as Column
from orthobench.papers.records import Elsewhere as Elsewhere
from orthobench.papers.records import Experiment as Experiment
from orthobench.papers.records import Paper as Paper
from orthobench.papers.records import Printed as Printed
from orthobench.papers.records import Protocol as Protocol
from orthobench.papers.records import Small as Small
from orthobench.papers.study import Study as Study
