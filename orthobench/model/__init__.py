"""Models: the base class, the settings that all models share, and the shapes that a task requires."""

from __future__ import annotations

from orthobench.model.base import Count as Count
from orthobench.model.base import Learns as Learns
from orthobench.model.base import Model as Model
from orthobench.model.base import ModelSettings as ModelSettings
from orthobench.model.base import OptimizerName as OptimizerName
from orthobench.model.base import OutputBias as OutputBias
from orthobench.model.base import ParameterGroup as ParameterGroup
from orthobench.model.base import Positive as Positive
from orthobench.model.base import SecondAxis as SecondAxis
from orthobench.model.base import Signature as Signature
from orthobench.model.base import State as State
