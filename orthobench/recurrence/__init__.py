"""Recurrence through time: the hot operation.

Each folder of `ops` declares an operation, which is also its definition, and contains its kernels. `cpu` and `cuda`
hold the code that kernels share, and `operation` chooses between them. Other modules are passes over all steps:
`projection` and the folders of `passes`.

An operation is called as `h, state = recurrence(x, weight, state, trace, ...)`; see `Operation.__call__`.
"""

from __future__ import annotations

from orthobench.recurrence.any_length import has_any_length as has_any_length
from orthobench.recurrence.any_length import latest as latest
from orthobench.recurrence.any_length import next_steps as next_steps
from orthobench.recurrence.any_length import previous_steps as previous_steps
from orthobench.recurrence.any_length import scan_steps as scan_steps
from orthobench.recurrence.backends import BACKENDS as BACKENDS
from orthobench.recurrence.backends import BackendError as BackendError
from orthobench.recurrence.backends import last_used as last_used
from orthobench.recurrence.backends import set_backend as set_backend
from orthobench.recurrence.backends import use_backend as use_backend
from orthobench.recurrence.call import IDENTITY as IDENTITY
from orthobench.recurrence.call import LEAKY_RELU as LEAKY_RELU
from orthobench.recurrence.call import MODRELU as MODRELU
from orthobench.recurrence.call import RELU as RELU
from orthobench.recurrence.call import TANH as TANH
from orthobench.recurrence.call import Activation as Activation
from orthobench.recurrence.call import Convolution as Convolution
from orthobench.recurrence.call import GradientTrace as GradientTrace
from orthobench.recurrence.call import Kind as Kind
from orthobench.recurrence.call import Multiply as Multiply
from orthobench.recurrence.call import Projection as Projection
from orthobench.recurrence.call import State as State
from orthobench.recurrence.operation import resolved as resolved
from orthobench.recurrence.ops.cornn import cornn as cornn
from orthobench.recurrence.ops.delta import delta_rule as delta_rule
from orthobench.recurrence.ops.delta import normalized as normalized
from orthobench.recurrence.ops.delta import read_memory as read_memory
from orthobench.recurrence.ops.diagonal import diagonal_recurrence as diagonal_recurrence
from orthobench.recurrence.ops.gru import gru as gru
from orthobench.recurrence.ops.independent import independent_recurrence as independent_recurrence
from orthobench.recurrence.ops.lem import lem as lem
from orthobench.recurrence.ops.lstm import lstm as lstm
from orthobench.recurrence.ops.memories import decaying_memory as decaying_memory
from orthobench.recurrence.ops.memories import nonlinear_memory as nonlinear_memory
from orthobench.recurrence.ops.memories import rwkv7 as rwkv7
from orthobench.recurrence.ops.memories import written_keys as written_keys
from orthobench.recurrence.ops.minimal import min_gru as min_gru
from orthobench.recurrence.ops.minimal import min_lstm as min_lstm
from orthobench.recurrence.ops.mlstm import mlstm as mlstm
from orthobench.recurrence.ops.mlstm import read_memories as read_memories
from orthobench.recurrence.ops.one_hot import distinct_inputs as distinct_inputs
from orthobench.recurrence.ops.one_hot import one_hot_recurrence as one_hot_recurrence
from orthobench.recurrence.ops.oscillators import oscillators as oscillators
from orthobench.recurrence.ops.plain import gated_recurrence as gated_recurrence
from orthobench.recurrence.ops.plain import lipschitz as lipschitz
from orthobench.recurrence.ops.plain import recurrence as recurrence
from orthobench.recurrence.ops.selective import selective_scan as selective_scan
from orthobench.recurrence.ops.selective.gated_scan import gated_scan as gated_scan
from orthobench.recurrence.ops.slstm import slstm as slstm
from orthobench.recurrence.ops.slstm import spread_heads as spread_heads
from orthobench.recurrence.ops.sparse import SparseLayers as SparseLayers
from orthobench.recurrence.ops.sparse import sparse_recurrence as sparse_recurrence
from orthobench.recurrence.passes.convolution import carried_inputs as carried_inputs
from orthobench.recurrence.passes.convolution import convolved as convolved
from orthobench.recurrence.passes.convolution import short_convolution as short_convolution
from orthobench.recurrence.passes.cross_entropy import cross_entropy as cross_entropy
from orthobench.recurrence.passes.gated_sum import gated_sum as gated_sum
from orthobench.recurrence.passes.gated_sum import skip_gelu as skip_gelu
from orthobench.recurrence.passes.head_norm import head_norm as head_norm
from orthobench.recurrence.passes.layer_norm import layer_norm as layer_norm
from orthobench.recurrence.passes.turned_heads import turned_heads as turned_heads
from orthobench.recurrence.projection import OutputRead as OutputRead
from orthobench.recurrence.projection import project as project
from orthobench.recurrence.projection import reading as reading
from orthobench.recurrence.projection import unread as unread
