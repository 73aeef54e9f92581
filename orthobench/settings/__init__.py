"""Settings: the hyper-parameters of tasks, models and training, as validated, immutable records."""

from __future__ import annotations

from orthobench.options.assignments import text as text
from orthobench.settings.base import NOTATIONS as NOTATIONS
from orthobench.settings.base import SHORT_NAMES as SHORT_NAMES
from orthobench.settings.base import Settings as Settings
from orthobench.settings.base import unknown_setting as unknown_setting
from orthobench.settings.canonical import CHECKSUM as CHECKSUM
from orthobench.settings.canonical import Scalar as Scalar
from orthobench.settings.canonical import digest as digest
from orthobench.settings.canonical import identity as identity
from orthobench.settings.canonical import merged_settings as merged_settings
from orthobench.settings.canonical import run_names as run_names
from orthobench.settings.canonical import same as same
from orthobench.settings.canonical import spec_columns as spec_columns
from orthobench.settings.canonical import whole_path as whole_path
from orthobench.settings.canonical import without_paths as without_paths
from orthobench.settings.descriptions import describe_settings as describe_settings
from orthobench.settings.toml_files import read_toml as read_toml
