"""Settings that the authors' programs fix: each experiment that follows a program has that program's value.

Each fact names the program's file and line. `repository` is the program's public repository.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from orthobench.papers import Experiment, find_study, papers
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve

CATALOG = Catalog()
EXPERIMENTS = [experiment for paper in papers() for experiment in paper.experiments()]
SCORNN_PAPERS = ("helfrich2017", "helfrich2018", "helfrich2020")


@dataclass(frozen=True)
class Fact:
    """Settings that a line of a program fixes, the experiments that follow it, and how many these are."""

    repository: str
    line: str
    settings: dict[str, Any]
    holds_for: Callable[[Experiment], bool]
    count: int


def readme(experiment: Experiment) -> bool:
    """Return whether the experiment's numbers are those of the nnRNN program's README."""
    return (experiment.paper, experiment.artifact) == ("kerg2019", "Penn Treebank table")


def unroll(experiment: Experiment) -> int:
    return experiment.task_settings["unroll_length"]


def is_nnrnn(experiment: Experiment, length: int) -> bool:
    """Return whether the experiment is the nnRNN of that README at a length of the unrolled sequence."""
    return readme(experiment) and experiment.model == "nnrnn" and unroll(experiment) == length


FACTS = [
    Fact(  # the gradient's upper block row alone enters G
        "stwisdom/urnn",
        "custom_optimizers.py:66",
        {"gradient": "top_row", "recurrent_optimizer": "cayley_rmsprop_keras1"},
        lambda e: (e.task, e.model) == ("mnist", "full_urnn"),
        19,
    ),
    Fact(  # the same, for the plain step along the gradient
        "stwisdom/urnn",
        "optimizations.py:40",
        {"gradient": "top_row", "optimizer": "rmsprop_theano", "recurrent_optimizer": "cayley"},
        lambda e: e.model == "full_urnn" and e.task != "mnist",
        15,
    ),
    Fact(  # one optimiser for all models of this program, of Keras 1's form
        "stwisdom/urnn",
        "mnist.py:179",
        {"optimizer": "rmsprop_keras1", "clip_norm": None, "clip_value": None},
        lambda e: (e.task, e.model) == ("mnist", "urnn"),
        7,
    ),
    Fact(
        "stwisdom/urnn",
        "mnist.py:179",
        {"optimizer": "rmsprop_keras1", "learning_rate": 1e-3, "clip_norm": 1.0},
        lambda e: (e.paper, e.task, e.model) == ("chang2019", "mnist", "lstm"),
        2,
    ),
    Fact(  # n_train = int(1e5), n_test = int(1e4)
        "stwisdom/urnn",
        "memory_problem.py",
        {"train_size": 100_000, "test_size": 10_000, "batch_size": 20, "epochs": 2, "evaluate_every": 50},
        lambda e: (e.paper, e.task) == ("helfrich2018", "copying") and e.model in ("urnn", "full_urnn"),
        4,
    ),
    Fact(
        "SpartinStuff/scoRNN",
        "scoRNN_copying.py:223",
        {"optimizer": "rmsprop_tf1", "learning_rate": 1e-3, "forget_bias": 1.0, "clip_norm": None, "clip_value": None},
        lambda e: e.paper in SCORNN_PAPERS and (e.task, e.model) == ("copying", "lstm"),
        6,
    ),
    Fact(
        "SpartinStuff/scoRNN",
        "scoRNN_mnist.py:195",
        {"optimizer": "rmsprop_tf1", "learning_rate": 1e-3, "forget_bias": 1.0, "clip_norm": None, "clip_value": None},
        lambda e: e.paper in SCORNN_PAPERS and (e.task, e.model) == ("mnist", "lstm"),
        10,
    ),
    Fact(
        "tk-rusch/coRNN",
        "noisy_CIFAR10/network.py:15",
        {"maps": "three", "validation_size": 3_000, "train_size": 47_000},
        lambda e: (e.task, e.model) == ("cifar10", "cornn"),
        1,
    ),
    Fact(
        "tk-rusch/LEM",
        "nCIFAR/utils.py:15",
        {"validation_size": 2_000, "train_size": 48_000},
        lambda e: (e.task, e.model) == ("cifar10", "lem"),
        1,
    ),
    Fact(
        "tk-rusch/LEM",
        "FitzHughNagumo/FitzHughNagumo_task.py:36",
        {"train_size": 128, "validation_size": 128, "test_size": 1024, "data_seed": "program", "clip_norm": None},
        lambda e: (e.task, e.model) == ("fitzhugh_nagumo", "lem"),
        1,
    ),
    Fact(  # adding_task.py:21-34, and one marker in each half
        "akandykeller/Wave_RNNs",
        "adding/utils.py:7",
        {"batch_size": 128, "learning_rate": 1e-4, "marker_layout": "halves", "test_size": 1000, "clip_norm": None},
        lambda e: (e.paper, e.task) == ("keller2024", "adding"),
        10,
    ),
    Fact(  # the paper's, where the program's options have init=eye, solo_init=no and, on MNIST, act=tanh
        "akandykeller/Wave_RNNs",
        "the paper's starts and activation",
        {"initialization": "shift", "encoder_start": "solo", "activation": "relu"},
        lambda e: (e.paper, e.model) == ("keller2024", "wrnn"),
        8,
    ),
    Fact(  # torch.nn.Linear follows torch.nn.RNN, whose state starts at 0
        "akandykeller/Wave_RNNs",
        "the output layer of iRNN",
        {"output_weight": "linear", "output_bias": "linear", "trained_start": False},
        lambda e: (e.paper, e.model) == ("keller2024", "irnn"),
        8,
    ),
    Fact(
        "akandykeller/Wave_RNNs",
        "sMNIST/utils.py:18",
        {"train_size": 57_000, "validation_size": 3_000, "learning_rate": 1e-4, "batch_size": 128},
        lambda e: (e.paper, e.task) == ("keller2024", "mnist"),
        4,
    ),
    Fact(  # noisy_cifar10_task.py has the noise
        "akandykeller/Wave_RNNs",
        "noisy_CIFAR10/utils.py:18",
        {"train_size": 47_000, "validation_size": 3_000, "noise": "shared", "batch_size": 256},
        lambda e: (e.paper, e.task) == ("keller2024", "cifar10"),
        2,
    ),
    Fact(  # its layer is the library's DeltaNet with the defaults: four heads, a convolution of four inputs, no gate
        "Benjamin-Walker/structured-linear-cdes",
        "models/fla.py:64",
        {
            "hidden_size": 128,
            "heads": 4,
            "convolution": 4,
            "output_gate": False,
            "key_size": None,
            "block": "post_norm",
        },
        lambda e: (e.paper, e.model) == ("walker2025", "deltanet"),
        8,
    ),
    Fact(  # its layer is the library's RWKV7Attention with heads of 64 features
        "Benjamin-Walker/structured-linear-cdes",
        "models/fla.py:57",
        {"hidden_size": 128, "heads": 2, "rank": None, "gate_rank": None, "block": "post_norm"},
        lambda e: (e.paper, e.model) == ("walker2025", "rwkv7"),
        4,
    ),
    Fact(  # and train.py: AdamW, weight decay 0.01 but for the embedding, a warm-up of a tenth, a cosine to 1e-5
        "IBM/expressive-sparse-state-space-model",
        "state_tracking_PyTorch/experiment_configs/parity_0.json",
        {"hidden_size": 128, "layers": 2, "dictionary_size": 8, "batch_size": 256, "learning_rate": 2e-3}
        | {"weight_decay": 1e-2, "decay_exempt": "embedding", "warmup": 0.1, "final_rate": 1e-5, "dropout": 0.01}
        | {"solved_at": 0.9995, "evaluate_every": 5000, "train_size": 25_600_000, "test_size": 8192},
        lambda e: e.paper == "terzic2025",
        4,
    ),
    Fact(  # torch.nn.Embedding, as in the program's other models
        "Benjamin-Walker/structured-linear-cdes",
        "models/lstm.py:11",
        {"embedding_size": 128, "embedding_start": "normal"},
        lambda e: e.paper == "walker2025" and e.artifact == "table 2",
        24,
    ),
    Fact(  # torch.nn.LSTM has two biases, and torch.nn.Linear follows it
        "Benjamin-Walker/structured-linear-cdes",
        "models/lstm.py",
        {"bias_start": "torch", "forget_bias": 0.0, "output_weight": "linear", "output_bias": "linear", "layers": 2},
        lambda e: (e.paper, e.model) == ("walker2025", "lstm"),
        4,
    ),
    Fact(
        "Benjamin-Walker/structured-linear-cdes",
        "models/xlstm.py:34",
        {"heads": 4, "dropout": 0.01, "decay_exempt": "embedding", "block": "residual"},
        lambda e: e.paper == "walker2025" and e.model in ("mlstm", "slstm"),
        8,
    ),
    Fact(
        "automl/unlocking_state_tracking",
        "xlstm/experiments/parity_mamba_single_layer.yaml",
        {"learning_rate": 1e-3, "batch_size": 256, "final_share": 1e-3, "clip_norm": None},
        lambda e: e.paper == "grazzi2025" and e.model in ("mamba", "deltanet"),
        12,
    ),
    Fact(  # and delta_net, delta_net_2, mamba_2; the four files with brackets have the same
        "automl/unlocking_state_tracking",
        "xlstm/experiments/mod_arithmetic_mamba.yaml",
        {"optimizer": "adamw", "weight_decay": 0.1, "warmup": 10_000},
        lambda e: e.paper == "grazzi2025" and e.model in ("mamba", "deltanet") and e.settings["language"] != "parity",
        8,
    ),
    Fact(  # and mamba_2, delta_net, delta_net_2
        "automl/unlocking_state_tracking",
        "xlstm/experiments/parity_mamba.yaml",
        {"optimizer": "adamw", "weight_decay": 0.0, "warmup": 2000},
        lambda e: e.paper == "grazzi2025" and e.model in ("mamba", "deltanet") and e.settings["language"] == "parity",
        4,
    ),
    Fact(
        "automl/unlocking_state_tracking",
        "xlstm/experiments/parity_xlstm10.yaml",
        {"warmup": 0.0, "weight_decay": 0.1},
        lambda e: (e.paper, e.model, e.settings.get("language")) == ("grazzi2025", "mlstm", "parity"),
        1,
    ),
    Fact(
        "automl/unlocking_state_tracking",
        "xlstm/experiments/parity_xlstm01_single_layer.yaml",
        {"learning_rate": 1e-3, "batch_size": 256, "heads": 4, "weight_decay": 0.1, "decay_exempt": "vectors"},
        lambda e: e.paper == "grazzi2025" and e.model in ("slstm", "mlstm"),
        6,
    ),
    Fact(
        "automl/DeltaProduct",
        "README.md, Configuration 2",
        {"shortest": 128, "test_longest": 512, "epochs": 100, "batch_size": 2048, "learning_rate": 1e-3, "heads": 8},
        lambda e: (e.paper, e.settings.get("group")) == ("siems2025", "S3"),
        4,
    ),
    Fact(  # use_short_conv=False, use_gate=False, d_state 128; 99 % of 100 000 words, and 1 % of those of 512 elements
        "automl/DeltaProduct",
        "state_tracking/src/main.py",
        {"convolution": None, "output_gate": False, "hidden_size": 256, "embedding_size": 128, "block_size": 128}
        | {"layers": 1, "train_size": 99_000, "test_size": 1_000, "test_shortest": 512, "test_longest": 512}
        | {"solved_at": 0.99, "weight_decay": 1e-6, "schedule": "cosine"},
        lambda e: e.paper == "siems2025",
        8,
    ),
    Fact(  # xavier_uniform with a gain of 2^-2.5
        "automl/DeltaProduct",
        "fla/layers/gated_deltaproduct.py",
        {"map_start": "xavier"},
        lambda e: e.paper == "siems2025",
        8,
    ),
    Fact(
        "mlech26l/ode-lstms",
        "xor_task.py",
        {"hidden_size": 64, "learning_rate": 5e-4, "batch_size": 256, "epochs": 200, "forget_bias": 1.0},
        lambda e: (e.paper, e.model) == ("hasani2022", "lstm"),
        2,
    ),
    Fact(  # the file mnist.pkl.gz, which has the bytes over 256
        "veugene/spectre_release",
        "datasets/mnist_data/data_source_link:1",
        {"validation_size": 10_000, "train_size": 50_000, "divisor": 256},
        lambda e: e.paper == "vorontsov2017",
        14,
    ),
    Fact(
        "KyleGoyette/nnRNN",
        "language_task.py:125",
        {"optimizer": "rmsprop_keras1", "learning_rate": 1e-3, "recurrent_learning_rate": 8e-5},
        lambda e: readme(e) and e.model == "exprnn" and (e.model_settings["hidden_size"], unroll(e)) != (1386, 150),
        3,
    ),
    Fact(
        "KyleGoyette/nnRNN",
        "README.md, PTB, Length=150, expRNN 1386",
        {"optimizer": "rmsprop_keras1", "learning_rate": 8e-3, "recurrent_learning_rate": 8e-4},
        lambda e: readme(e) and e.model == "exprnn" and (e.model_settings["hidden_size"], unroll(e)) == (1386, 150),
        1,
    ),
    *(
        Fact(
            "KyleGoyette/nnRNN",
            f"README.md, PTB, Length={length}, nnRNN",
            {"optimizer": "adam_nnrnn", "learning_rate": 2e-3, "modulus_penalty": 1e-4}
            | {"recurrent_optimizer": "adam_nnrnn", "recurrent_learning_rate": 2e-4}
            | {"triangle_decay": decay, "clip_norm": clip},
            partial(is_nnrnn, length=length),
            1,
        )
        for length, decay, clip in ((150, 1e-5, 10.0), (300, 1e-6, 5.0))
    ),
    Fact(
        "KyleGoyette/nnRNN",
        "README.md, PTB, RNN",
        {"optimizer": "rmsprop_keras1", "learning_rate": 1e-5, "activation": "modrelu"},
        lambda e: readme(e) and e.model == "rnn",
        2,
    ),
    Fact(
        "KyleGoyette/nnRNN",
        "README.md, PTB, EURNN",
        {"optimizer": "rmsprop_keras1", "learning_rate": 1e-3},
        lambda e: readme(e) and e.model == "eurnn",
        4,
    ),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact.repository}/{fact.line}")
def test_experiments_follow_the_settings_of_their_program(fact):
    following = [experiment for experiment in EXPERIMENTS if fact.holds_for(experiment)]
    assert len(following) == fact.count
    for experiment in following:
        config = resolve(CATALOG, experiment.task, experiment.model, {}, experiment=experiment)
        groups = (config.task_settings, config.model_settings, config.training)
        settings = {name: value for group in groups for name, value in group.model_dump().items()}
        assert {name: settings[name] for name in fact.settings} == fact.settings, experiment.label


def test_results_are_taken_at_the_programs_epoch():
    """coRNN's sMNIST_task.py:83 tests after the last epoch; its other two programs at the best validation."""
    own = [e for e in EXPERIMENTS if e.paper == "rusch2021cornn"]
    selections = {(e.task, e.settings.get("permuted")): e.selection for e in own}
    assert selections == {("mnist", False): "last", ("mnist", True): "best_valid", ("cifar10", None): "best_valid"}


@pytest.mark.parametrize(
    ("model", "length"), [("full_urnn", 1000), ("full_urnn", 2000), ("urnn", 1000), ("urnn", 2000)]
)
def test_run_shares_data_with_other_models_where_its_experiments_differ(model, length):
    """The uRNNs' curves in helfrich2018 are of another program's data; a run of theirs is comparable with scoRNN's."""
    run, other = (resolve(CATALOG, "copying", name, {"sequence_length": length}) for name in (model, "scornn"))
    assert run.spec.condition == other.spec.condition
    assert run.training == other.training
    (own,) = (e for e in EXPERIMENTS if e.own_data and (e.model, e.settings["sequence_length"]) == (model, length))
    reproduced = resolve(CATALOG, "copying", model, {}, experiment=own)
    assert reproduced.spec.model_settings == run.spec.model_settings
    assert reproduced.training.epochs * own.settings["train_size"] == run.training.epochs * 20_000


def test_state_tracking_study_starts_every_embedding_alike():
    """Its protocol is one for all models, also where a paper's experiment gives a model another start."""
    models = ["lstm", "gru", "slstm", "mlstm", "deltanet", "scornn"]
    for run in find_study("state-tracking").runs("paper", models):
        settings = resolve(CATALOG, run.task, run.model, run.settings).model_settings.model_dump()
        started = {name: settings[name] for name in ("embedding_start", "output_weight", "output_bias")}
        assert started == {"embedding_start": "normal", "output_weight": None, "output_bias": "zeros"}, run.model
        assert settings.get("bias_start", "zeros") == "zeros"
