"""Steps on sequences of several lengths and on symbols: no wait for a GPU, on a CUDA runtime without one."""

import json

import pytest
from support import cuda_stub

pytest.importorskip("triton")

CODE = """
import json, sys
sys.path.insert(0, "tests")
import torch
from support.cuda_stub import steps
from support.lengths import Positions, RunningSums, Sums
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.training.trainer import Trainer

steps.runtime.stub_on_wait(steps.on_wait)
device = torch.device("cuda", 0)
many = {"train_size": 1400, "test_size": 10, "hidden_size": 8, "batch_size": 700}
for readout in ("last_valid", "mean", "positions", "all"):
    base = {"positions": Positions, "all": RunningSums}.get(readout, Sums)
    task_class = type("Padded", (base,), {"trims": False, "readout": readout})
    for more in ({}, {"embedding_size": 5}):
        config = resolve(Catalog(()), "adding", "scornn", many | more)
        trainer = Trainer(config, task_class(config.task_settings, 3, device), device)
        for mode in ("off", "on"):
            trainer.use_graph(mode)
            for _ in range(5):
                trainer.advance()
            steps.reset()
            trainer.advance()
            print(json.dumps([readout, more, mode, steps.counts(), steps.callers]), flush=True)
"""


@pytest.mark.slow
def test_every_readout_and_the_embedding_fit_in_a_graph(cuda_stub_environment):
    results = [json.loads(line) for line in cuda_stub.run(cuda_stub_environment, "-c", CODE).splitlines()]
    assert len(results) == 16
    for readout, more, mode, counts, callers in results:
        assert (counts["waits"], counts["from_host"]) == (0, 0), (readout, more, callers)
        assert counts["graph_launches"] == (mode == "on"), (readout, more)
