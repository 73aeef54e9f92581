"""What testing, probes, logging and checkpoints cost, as shares of a run's training time.

Train the quick presets into a temporary database, and compare the seconds that a run records for each phase. All phases
are timed in one process, so the shares hold on a busy machine too.
"""

from __future__ import annotations

import tempfile

from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.training.lifecycle import train


def main() -> None:
    catalog = Catalog()
    parts = ("test", "probe", "log", "checkpoint")
    print(f"{'run':<16} {'train s':>8} " + " ".join(f"{part:>10}" for part in parts) + "   log + checkpoint")
    with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/r.db", create=True) as store:
        for task in ("adding", "copying"):
            for model in ("scornn", "lstm"):
                config = resolve(catalog, task, model, {}, "quick")
                # A checkpoint every two seconds is fifteen times as often as by default.
                run = train(config, store, RunOptions(device="cpu", checkpoint_every=2.0, keep_weights="none"))
                probes = sum(spent for what, spent in run.seconds.items() if what.startswith("probe "))
                seconds = run.seconds | {"probe": probes}
                shares = [seconds.get(part, 0.0) / seconds["train"] for part in parts]
                cells = " ".join(f"{share:>10.2%}" for share in shares)
                print(f"{task} {model:<8} {seconds['train']:>8.1f} {cells}   {shares[2] + shares[3]:.2%}")


if __name__ == "__main__":
    main()
