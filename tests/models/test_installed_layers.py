"""The layers of xlstm and of flash-linear-attention, where these packages are installed; else there is nothing here.

`test_foreign.py` has layers of the same form, which are tested everywhere.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from orthobench.model import Signature
from orthobench.model.build import build_model
from orthobench.plugins import Catalog

XLSTM = {
    "xlstm.blocks.mlstm.layer:mLSTMLayer": {"context_length": 64, "num_heads": 2},
    "xlstm.blocks.slstm.layer:sLSTMLayer": {"backend": "vanilla", "num_heads": 2},
}
FLA = {
    f"fla.layers:{name}": {"num_heads": 2, "head_dim": 16}
    for name in ("GatedDeltaNet", "DeltaNet", "KimiDeltaAttention", "Mamba2")
}


def built(name: str, settings: dict):
    catalog = Catalog()
    cls = catalog.load("model", catalog.named(name))
    read = cls.Settings.read({"hidden_size": 32, **settings})
    return build_model(cls, read, Signature(5, 2, "all"), torch.Generator().manual_seed(0))


if find_spec("xlstm"):

    @pytest.mark.parametrize("name", XLSTM)
    def test_layer_of_xlstm_is_the_one_called_by_hand(name):
        model = built(name, XLSTM[name]).eval()
        x = torch.randn(20, 3, 5, generator=torch.Generator().manual_seed(1))
        outputs, _ = model(x)
        mapped = nn.functional.linear(x.transpose(0, 1), model.map_weight, model.map_bias)
        by_hand = nn.functional.linear(model.layer(mapped).transpose(0, 1), model.output_weight, model.output_bias)
        torch.testing.assert_close(outputs, by_hand)
        outputs.square().mean().backward()
        assert all(each.grad is not None for each in model.layer.parameters())


if find_spec("fla") and torch.cuda.is_available():

    @pytest.mark.parametrize("name", FLA)
    def test_layer_of_flash_linear_attention_is_the_one_called_by_hand(name):
        model = built(name, FLA[name]).cuda().eval()
        x = torch.randn(20, 3, 5, generator=torch.Generator().manual_seed(1)).cuda()
        outputs, _ = model(x)
        mapped = nn.functional.linear(x.transpose(0, 1), model.map_weight, model.map_bias)
        by_hand = nn.functional.linear(model.layer(mapped)[0].transpose(0, 1), model.output_weight, model.output_bias)
        torch.testing.assert_close(outputs, by_hand, rtol=1e-2, atol=1e-2)
