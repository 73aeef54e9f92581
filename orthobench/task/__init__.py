"""Tasks: the base class, their training data in batches, the settings of training, and seeds split by purpose."""

from __future__ import annotations

from orthobench.metric import Metric as Metric
from orthobench.task.base import PROTOCOL_OF_MODELS as PROTOCOL_OF_MODELS
from orthobench.task.base import Task as Task
from orthobench.task.base import constant_of as constant_of
from orthobench.task.base import loss_of as loss_of
from orthobench.task.base import means_of as means_of
from orthobench.task.base import measured as measured
from orthobench.task.batch import Batch as Batch
from orthobench.task.batch import Split as Split
from orthobench.task.batch import Stream as Stream
from orthobench.task.batches import Batches as Batches
from orthobench.task.batches import as_stream as as_stream
from orthobench.task.seeds import derive_seed as derive_seed
from orthobench.task.seeds import seeded_generator as seeded_generator
from orthobench.task.settings import MULTIPLES as MULTIPLES
from orthobench.task.settings import ScalableSettings as ScalableSettings
from orthobench.task.settings import Size as Size
from orthobench.task.settings import SyntheticSettings as SyntheticSettings
from orthobench.task.settings import TrainingSettings as TrainingSettings
