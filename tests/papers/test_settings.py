"""Every experiment's settings against what its paper prints.

`PRINTED` is written from the papers' texts and tables, and from the settings that authors publish with their programs.
It names no setting that a source leaves open. Where a text names a family of optimisers, such as RMSProp, any
framework's form of it agrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

import pytest

from orthobench.model import OptimizerName
from orthobench.papers import Experiment, papers
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve

CATALOG = Catalog()
PAPERS = {paper.key: paper for paper in papers()}


def forms(family: str) -> frozenset[str]:
    """Return the optimisers of a family: the same algorithm in the forms of several frameworks."""
    return frozenset(name for name in get_args(OptimizerName) if name.split("_")[0] == family)


RMSPROP, ADAM = forms("rmsprop"), forms("adam")
R = {"optimizer": RMSPROP}
A = {"optimizer": ADAM}
RA = {"recurrent_optimizer": RMSPROP, "optimizer": ADAM}
ORDERED, PERMUTED = {"permuted": False}, {"permuted": True}
BOTH = (ORDERED, PERMUTED)

Row = tuple[str, dict[str, Any]]


def rows(model: str, *alternatives: Any, **settings: Any) -> Iterator[Row]:
    """Yield a model's runs: one for each combination of the alternatives, which are settings or tuples of settings."""
    choices = [each if isinstance(each, tuple) else (each,) for each in alternatives]
    for combination in product(*choices):
        yield model, {name: value for each in combination for name, value in each.items()} | settings


def lengths(*values: int) -> tuple[dict[str, Any], ...]:
    return tuple({"sequence_length": value} for value in values)


def sizes(*values: int) -> tuple[dict[str, Any], ...]:
    return tuple({"hidden_size": value} for value in values)


def unrolled(*values: int) -> tuple[dict[str, Any], ...]:
    return tuple({"unroll_length": value} for value in values)


SLICE = tuple(
    {"language": name, "optimizer": "adamw", "learning_rate": 2e-3, "weight_decay": 1e-2, "warmup": 0.1}
    | {"schedule": "cosine", "final_rate": 1e-5, "solved_at": 0.9995, "dropout": 0.01, "train_size": 25_600_000}
    for name in ("cycle_nav", "even_pairs", "mod_arith", "parity")
)
URNN_PROGRAM = {"train_size": 100_000, "test_size": 10_000, "batch_size": 20, "epochs": 2}


def grazzi(*, parity_warmup: int = 2000, parity_decay: float = 0.1) -> tuple[dict[str, Any], ...]:
    """The three languages; the files of modular arithmetic share their warm-up and weight decay."""
    return tuple(
        {"language": name, "protocol": "xlstm", "learning_rate": 1e-3, "warmup": warmup, "train_size": 256 * steps}
        | {"schedule": "cosine", "final_share": 1e-3, "final_rate": None, "solved_at": None, "layers": 2}
        | {"weight_decay": decay, "optimizer": "adamw"}
        for name, warmup, decay, steps in (
            ("parity", parity_warmup, parity_decay, 20_000),
            ("mod_arith", 10_000, 0.1, 100_000),
            ("mod_arith_brackets", 10_000, 0.1, 100_000),
        )
    )


RANGES = ({"negative_eigenvalues": False}, {"negative_eigenvalues": True})
DELTA_PRODUCT: dict[str, Any] = {
    "shortest": 128,
    "longest": 128,
    "test_shortest": 512,
    "test_longest": 512,
    "generators": None,
}
DELTA_PRODUCT |= {"train_size": 99_000, "test_size": 1_000, "batch_size": 2048, "epochs": 100, "layers": 1}
DELTA_PRODUCT |= {"hidden_size": 256, "heads": 8, "learning_rate": 1e-3, "weight_decay": 1e-6, "decay": False}
DELTA_PRODUCT |= {"optimizer": "adamw", "schedule": "cosine", "solved_at": 0.99}
ADDING_2024 = tuple(each | {"batch_size": 128, "marker_layout": "halves"} for each in lengths(100, 200, 400, 700, 1000))
ENCODINGS = tuple({"encoding": name} for name in ("equidistant", "event"))


def scornn_on_images(units: tuple[int, ...] = (170, 360, 512)) -> Iterator[Row]:
    """The scoRNN paper, section 5.3: rates by size, a tenth or half of the units negative."""
    for n, rate in ((170, 1e-4), (360, 1e-5), (512, 1e-5)):
        if n not in units:
            continue
        rates = {"learning_rate": 1e-3, "recurrent_learning_rate": rate}
        optimizers = {"optimizer": RMSPROP, "recurrent_optimizer": RMSPROP}
        yield from rows("scornn", ORDERED, rates, optimizers, hidden_size=n, negative_ones=n // 10)
        yield from rows("scornn", PERMUTED, rates, optimizers, hidden_size=n, negative_ones=n // 2)


ADDING_2018 = {"train_size": 100_000, "test_size": 10_000}
MNIST_2018 = {"train_size": 55_000, "test_size": 10_000, "epochs": 70}
ADDING_LENGTHS = ((200, 2.0), (400, 4.0), (750, 0.0))
"""The lengths of the adding problem, each with the LSTM's forget bias."""

ADDING_2020 = {"epochs": 6, "shuffle": True}
TIMIT_2020 = {"batch_size": 28, "epochs": 300}
PTB_2020 = {"epochs": 20}

GRID: dict[str, Any] = {"batch_size": 128, "max_iterations": 50_000}
GRID |= {"optimizer": frozenset({"sgd_momentum", "adagrad_tf1"})}
GRID |= {"learning_rate": frozenset({0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0})}
GRID |= {"recurrent_scale": frozenset({0.0, 1.0, 2.0, 4.0, 8.0, 16.0})}
EULER = GRID | {"step_size": frozenset({0.01, 0.1, 1.0})}
ANTISYMMETRIC = EULER | {"diffusion": frozenset({0.001, 0.01, 0.1, 1.0})}
WHOLE_MNIST = {"train_size": 60_000, "test_size": 10_000}
CIFAR10 = (
    {"noise_padded": False, "train_size": 50_000, "test_size": 10_000},
    {"noise_padded": True, "noise": "fresh", "max_iterations": 10_000, "train_size": 50_000, "test_size": 10_000},
)

NNRNN_PTB = {"batch_size": 128, "epochs": 100, "plateau_decay": 0.5, "embedding_size": 200}
KERAS = {"optimizer": "rmsprop_keras1"}
NNRNN_LATER = (
    {"unroll_length": 150, "triangle_decay": 1e-5, "clip_norm": 10.0},
    {"unroll_length": 300, "triangle_decay": 1e-6, "clip_norm": 5.0},
)
EXPRNN_PTB = NNRNN_PTB | KERAS | {"recurrent_optimizer": "rmsprop_keras1", "initialization": "half_circle"}

EXPRNN_MNIST = {"batch_size": 128, "epochs": 70, "train_size": 60_000, "initialization": "half_circle"}
EXPRNN_MNIST |= {"optimizer": "rmsprop_torch", "recurrent_optimizer": "rmsprop_torch"}


def exprnn_on_images() -> Iterator[Row]:
    """The settings published with EXPRNN's program: A's rate is a tenth of the other."""
    for n, ordered, permuted in ((170, 7e-4, 1e-3), (360, 5e-4, 7e-4), (512, 3e-4, 5e-4)):
        for order, rate in ((ORDERED, ordered), (PERMUTED, permuted)):
            rates = {"learning_rate": rate, "recurrent_learning_rate": pytest.approx(rate / 10)}
            yield from rows("exprnn", order, EXPRNN_MNIST, rates, hidden_size=n)
        for base in (1, 100, None):
            yield from rows("dtriv", PERMUTED, EXPRNN_MNIST, rates, hidden_size=n, rebase_every=base)


VORONTSOV = {"hidden_size": 128, "learning_rate": 1e-3, "batch_size": 50, "epochs": 120, "clip_value": 100.0}

PRINTED: dict[tuple[str, str], list[Row]] = {
    ("helfrich2018", "figure 1"): [
        *rows("lstm", lengths(1000, 2000), hidden_size=68, forget_bias=1.0),
        *rows("urnn", lengths(1000, 2000), URNN_PROGRAM, hidden_size=470),
        *rows("full_urnn", lengths(1000, 2000), URNN_PROGRAM, hidden_size=128),
        *rows("eurnn", lengths(1000, 2000), hidden_size=512, style="tunable", capacity=2),
        *rows("scornn", lengths(1000, 2000), hidden_size=190, negative_ones=95),
    ],
    ("helfrich2018", "figure 2"): [
        *rows("scornn", lengths(200), ADDING_2018, hidden_size=170, negative_ones=85),
        *rows("scornn", lengths(400, 750), ADDING_2018, hidden_size=170, negative_ones=119),
        *(
            row
            for length, bias in ADDING_LENGTHS
            for row in rows("lstm", lengths(length), ADDING_2018, hidden_size=60, forget_bias=bias)
        ),
        *rows("full_urnn", lengths(200, 400, 750), ADDING_2018, hidden_size=120),
        *rows("urnn", lengths(200, 400, 750), ADDING_2018, hidden_size=950),
        *rows("eurnn", lengths(200, 400), ADDING_2018, hidden_size=512, style="tunable"),
        *rows("eurnn", lengths(750), ADDING_2018, hidden_size=512, style="fft"),
        *rows("ornn", lengths(200, 400, 750), ADDING_2018, hidden_size=128, reflections=16, learning_rate=0.01),
    ],
    ("helfrich2018", "rate of the LSTM"): [
        row
        for length, bias in ADDING_LENGTHS
        for row in rows("lstm", lengths(length), ADDING_2018, A, hidden_size=60, forget_bias=bias, learning_rate=1e-2)
    ],
    ("helfrich2018", "figure 5"): [
        *rows("scornn", lengths(500), max_iterations=300),
        *rows("lstm", lengths(500), max_iterations=300, forget_bias=1.0),
    ],
    ("helfrich2018", "table 1"): [
        *((model, settings | MNIST_2018) for model, settings in scornn_on_images()),
        *rows("lstm", BOTH, MNIST_2018, sizes(128, 256, 512), forget_bias=1.0),
        *rows("urnn", BOTH, MNIST_2018, sizes(512, 2170)),
        *rows("full_urnn", BOTH, MNIST_2018, sizes(116, 512)),
        *rows("eurnn", PERMUTED, MNIST_2018, hidden_size=512),
        *rows("ornn", ORDERED, MNIST_2018, hidden_size=256),
    ],
    ("helfrich2018", "figure 4, n = 116 and 170"): [
        *((model, settings | MNIST_2018) for model, settings in scornn_on_images() if settings["hidden_size"] == 170),
        *rows("full_urnn", BOTH, MNIST_2018, hidden_size=116),
    ],
    ("helfrich2018", "table 2"): [
        *rows("scornn", RA, hidden_size=224, negative_ones=22, learning_rate=1e-3, recurrent_learning_rate=1e-3),
        *rows("scornn", RA, hidden_size=322, negative_ones=32, learning_rate=1e-3, recurrent_learning_rate=1e-4),
        *rows("scornn", RA, hidden_size=425, negative_ones=42, learning_rate=1e-3, recurrent_learning_rate=1e-4),
        *rows("lstm", sizes(84, 120, 158), forget_bias=-4.0),
        *rows("urnn", sizes(158, 256, 378)),
        *rows("full_urnn", sizes(128, 192, 256)),
    ],
    ("helfrich2018", "table 3"): [
        *rows("rnn", ORDERED, sizes(116, 360, 512)),
        *rows("full_urnn", ORDERED, hidden_size=360),
    ],
    ("helfrich2017", "figure 1"): [
        *rows("lstm", lengths(1000, 2000), hidden_size=68),
        *rows("urnn", lengths(1000, 2000), hidden_size=470),
        *rows("full_urnn", lengths(1000, 2000), hidden_size=128),
        *rows("scornn", lengths(1000, 2000), hidden_size=190, negative_ones=95),
    ],
    ("helfrich2017", "figure 2"): [
        *rows("scornn", lengths(200, 400, 750), ADDING_2018, hidden_size=170, negative_ones=85),
        *rows("lstm", lengths(200, 400, 750), ADDING_2018, hidden_size=60),
        *rows("full_urnn", lengths(200, 400, 750), ADDING_2018, hidden_size=120),
        *rows("urnn", lengths(200, 400, 750), ADDING_2018, hidden_size=950),
    ],
    **{
        ("helfrich2017", table): [
            *((model, settings | MNIST_2018) for model, settings in scornn_on_images((170, 360)) if order(settings)),
            *rows("lstm", task, MNIST_2018, sizes(128, 256)),
            *rows("urnn", task, MNIST_2018, hidden_size=512),
            *rows("full_urnn", task, MNIST_2018, sizes(116, 512)),
        ]
        for table, task, order in (
            ("table 1", ORDERED, lambda settings: not settings["permuted"]),
            ("table 2", PERMUTED, lambda settings: settings["permuted"]),
        )
    },
    ("helfrich2020", "figure 1"): [
        *rows("enrnn", ADDING_2020, R, hidden_size=160, coupling=True, recurrent_optimizer=RMSPROP),
        *rows("lstm", ADDING_2020, A, hidden_size=60),
        *rows(
            "spectral_rnn", ADDING_2020, A, hidden_size=60, reflections=16, margin=0.01, learning_rate_decay=0.99
        ),
        *rows("scornn", ADDING_2020, RA, hidden_size=170, negative_ones=119),
        *rows("ornn", ADDING_2020, A, hidden_size=128, reflections=16),
        *rows("full_urnn", ADDING_2020, R, hidden_size=120),
    ],
    ("helfrich2020", "figure 2"): [
        *rows("enrnn", R, hidden_size=192, coupling=True, recurrent_optimizer=RMSPROP),
        *rows("lstm", R, sizes(68, 192)),
        *rows("scornn", R, hidden_size=190, negative_ones=95, recurrent_optimizer=RMSPROP),
        *rows("full_urnn", R, hidden_size=128),
    ],
    ("helfrich2020", "table 2"): [
        *rows("enrnn", TIMIT_2020, A, hidden_size=468, short_size=94, coupling=False, recurrent_optimizer=ADAM),
        *rows("lstm", TIMIT_2020, R, sizes(158, 468)),
        *rows("scornn", TIMIT_2020, RA, hidden_size=425),
    ],
    ("helfrich2020", "table 3"): [
        *rows(
            "enrnn", PTB_2020, A, hidden_size=1030, short_size=720, negative_ones=186, coupling=True,
            coupling_start="orthogonal", activation="relu", recurrent_optimizer=ADAM,
        ),
        *rows("lstm", PTB_2020, R, sizes(350, 1030), forget_bias=0.0),
        *rows("gru", hidden_size=415),
        *rows("eurnn", hidden_size=2048),
        *rows("goru", hidden_size=512),
        *rows("ornn", hidden_size=512),
        *rows("nnrnn", hidden_size=1024),
    ],
    ("chang2019", "table 1"): [
        *rows("lstm", BOTH, hidden_size=128),
        *rows("full_urnn", BOTH, sizes(116, 512)),
        *rows("soft_orthogonal", BOTH, hidden_size=128, margin=0.1),
        *rows("kru", BOTH, hidden_size=512),
        *rows("antisymmetric", BOTH, ANTISYMMETRIC, WHOLE_MNIST, hidden_size=128),
        *rows("antisymmetric_gated", BOTH, ANTISYMMETRIC, WHOLE_MNIST, hidden_size=128),
    ],
    ("chang2019", "table 2"): [
        *rows("lstm", GRID, CIFAR10, hidden_size=128, forget_bias=1.0),
        *rows("ablation", EULER, CIFAR10, hidden_size=196),
        *rows("antisymmetric", ANTISYMMETRIC, CIFAR10, hidden_size=256),
        *rows("antisymmetric_gated", ANTISYMMETRIC, CIFAR10, hidden_size=256),
    ],
    ("chang2019", "last eight rows"): [
        *rows("lstm", GRID, forget_bias=1.0, last_rows=8),
    ],
    ("wisdom2016", "notebook"): [
        *rows("full_urnn", PERMUTED, hidden_size=512, learning_rate=1e-4, recurrent_learning_rate=1e-6, batch_size=50),
        *rows("urnn", PERMUTED, hidden_size=512, learning_rate=1e-4, batch_size=50),
    ],
    ("kerg2019", "Penn Treebank table"): [
        *rows("rnn", NNRNN_PTB, KERAS, unrolled(150, 300), hidden_size=1024, learning_rate=1e-5),
        *rows("eurnn", NNRNN_PTB, KERAS, unrolled(150, 300), sizes(1024, 2048), learning_rate=1e-3),
        *rows("exprnn", EXPRNN_PTB, unrolled(150, 300), hidden_size=1024, learning_rate=1e-3),
        *rows("exprnn", EXPRNN_PTB, unrolled(300), hidden_size=1386, learning_rate=1e-3),
        *rows(
            "exprnn", EXPRNN_PTB, unrolled(150), hidden_size=1386, learning_rate=8e-3, recurrent_learning_rate=8e-4
        ),
        *rows(
            "nnrnn", NNRNN_PTB, NNRNN_LATER, hidden_size=1024, optimizer="adam_nnrnn", learning_rate=2e-3,
            recurrent_optimizer="adam_nnrnn", recurrent_learning_rate=2e-4, modulus_penalty=1e-4,
        ),
    ],
    ("kerg2019", "supplement"): [
        *rows(
            "exprnn", EXPRNN_PTB, unrolled(150, 300), sizes(1024, 1386), learning_rate=5e-3,
            recurrent_learning_rate=1e-4,
        ),
        *rows(
            "nnrnn", NNRNN_PTB, KERAS, unrolled(150), hidden_size=1024, learning_rate=8e-4,
            recurrent_learning_rate=8e-5, modulus_penalty=1.0, triangle_decay=1e-4,
        ),
        *rows(
            "nnrnn", NNRNN_PTB, KERAS, unrolled(300), hidden_size=1024, learning_rate=8e-4,
            recurrent_learning_rate=6e-5, modulus_penalty=1e-4, triangle_decay=1e-4,
        ),
    ],
    ("lezcano2019", "copying figure"): [
        *rows(
            "exprnn", lengths(1000, 2000), hidden_size=190, initialization="full_circle", learning_rate=2e-4,
            recurrent_learning_rate=2e-5, batch_size=128, optimizer="rmsprop_torch",
            recurrent_optimizer="rmsprop_torch",
        ),
    ],
    ("lezcano2019", "MNIST table"): [
        *exprnn_on_images(),
        *rows("full_urnn", PERMUTED, sizes(116, 360, 512)),
        *rows("lstm", PERMUTED, sizes(116, 170, 360, 512)),
        *rows("scornn", PERMUTED, sizes(170, 360, 512)),
    ],
    ("vorontsov2017", "tables 1 and 2"): [
        *rows(
            "soft_orthogonal", BOTH, VORONTSOV, tuple({"margin": mu} for mu in (0.0, 1e-3, 1e-2, 0.1, 1.0, None)),
            initialization="orthogonal",
        ),
        *rows("soft_orthogonal", BOTH, VORONTSOV, margin=None, initialization="glorot"),
    ],
    ("rusch2021cornn", "published results"): [
        *rows(
            "cornn", ORDERED, hidden_size=256, learning_rate=2.1e-3, step_size=0.042, frequency=2.7, damping=4.7,
            batch_size=120, epochs=120, train_size=57_000,
        ),
        *rows(
            "cornn", PERMUTED, hidden_size=256, learning_rate=5.4e-3, step_size=0.076, frequency=0.4, damping=8.0,
            batch_size=120, epochs=120, train_size=57_000,
        ),
        *rows(
            "cornn", hidden_size=128, learning_rate=7.5e-3, step_size=0.034, frequency=1.3, damping=12.7,
            batch_size=100, epochs=120, noise_padded=True, noise="shared",
        ),
    ],
    ("rusch2022lem", "published results"): [
        *rows("lem", ORDERED, hidden_size=128, learning_rate=1.8e-3, step_size=0.21, clip_norm=1.0, batch_size=128),
        *rows("lem", PERMUTED, hidden_size=128, learning_rate=7.3e-3, step_size=0.31, clip_norm=1.1, batch_size=128),
        *rows("lem", hidden_size=16, learning_rate=9.04e-3, step_size=1.0, batch_size=32, epochs=400, duration=400.0),
        *rows("lem", hidden_size=128, learning_rate=3.22e-3, step_size=0.44, batch_size=100, noise_padded=True),
    ],
    ("walker2025", "table 2"): [
        *rows("lstm", tuple({"language": name} for name in ("cycle_nav", "even_pairs", "mod_arith", "parity")),
              hidden_size=128, layers=2, optimizer="adamw", learning_rate=2e-3, weight_decay=1e-2, batch_size=256,
              warmup=0.1, schedule="cosine", final_rate=1e-5, solved_at=0.9995, train_size=25_600_000, test_size=8192),
        *rows("slstm", SLICE, hidden_size=128, layers=2),
        *rows("mlstm", SLICE, block_size=128, layers=2, heads=4),
        *rows("deltanet", SLICE, RANGES, hidden_size=128, layers=2, heads=4, convolution=4, output_gate=False),
        *rows("rwkv7", SLICE, hidden_size=128, layers=2, heads=2),
    ],
    ("terzic2025", "table 2"): [
        *rows("pd_ssm", SLICE, hidden_size=128, layers=2, dictionary_size=8, embedding_size=128),
    ],
    ("grazzi2025", "table 3"): [
        *rows("slstm", grazzi(), hidden_size=128, heads=4),
        *rows("mlstm", grazzi(parity_warmup=0), block_size=128, heads=4),
        *rows("mamba", grazzi(parity_decay=0), RANGES, hidden_size=128, expansion=2, state_size=16, convolution=4),
        *rows("deltanet", grazzi(parity_decay=0), RANGES, hidden_size=128, heads=4, convolution=4, output_gate=False),
    ],
    ("siems2025", "README"): [
        *rows("deltaproduct", DELTA_PRODUCT, RANGES, ({"householders": 1}, {"householders": 2}), group="S3"),
    ],
    ("siems2025", "figure 1"): [
        *rows("deltaproduct", DELTA_PRODUCT, RANGES[1], tuple({"householders": n} for n in (1, 2, 3, 4)), group="S5"),
    ],
    ("keller2024", "table 1"): [
        *rows("wrnn", ADDING_2024, hidden_size=100, channels=27, optimizer="adam", activation="relu"),
        *rows("irnn", ADDING_2024, hidden_size=100, optimizer="adam", trained_start=False),
    ],
    ("keller2024", "table 2"): [
        *rows("wrnn", BOTH, channels=16, optimizer="adam", batch_size=128, epochs=120, activation="relu"),
        *rows("wrnn", channels=16, optimizer="adam", batch_size=256, epochs=120, noise_padded=True),
        *rows("irnn", BOTH, optimizer="adam", batch_size=128),
        *rows("irnn", optimizer="adam", batch_size=256, noise_padded=True),
    ],
    ("hasani2022", "table 4"): [
        *rows("cornn", ENCODINGS, batch_size=128, epochs=200, pad_size=32, train_size=100_000),
        *rows("lipschitz_rnn", ENCODINGS, batch_size=128, epochs=200, pad_size=32, train_size=100_000),
        *rows("lstm", ENCODINGS, R, hidden_size=64, batch_size=256, epochs=200, learning_rate=5e-4),
    ],
}  # fmt: skip


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return all settings of an experiment's run, with those at their neutral values."""
    config = resolve(CATALOG, experiment.task, experiment.model, {}, experiment=experiment)
    groups = (config.task_settings, config.model_settings, config.training)
    return {name: value for group in groups for name, value in group.model_dump().items()}


def agrees(printed: Any, value: Any) -> bool:
    return value in printed if isinstance(printed, frozenset) else bool(value == printed)


def differences(row: Row, experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which an experiment is not the row: the printed value and the experiment's."""
    model, printed = row
    settings = settings_of(experiment) | {"model": experiment.model}
    return {
        name: (value, settings.get(name, "no such setting"))
        for name, value in ({"model": model} | printed).items()
        if not agrees(value, settings.get(name, "no such setting"))
    }


@pytest.mark.parametrize("source", PRINTED, ids=" ".join)
def test_experiments_have_the_published_settings(source):
    key, artifact = source
    experiments = [experiment for experiment in PAPERS[key].experiments() if experiment.artifact == artifact]
    for row in PRINTED[source]:
        nearest = min(experiments, key=lambda experiment: len(differences(row, experiment)), default=None)
        assert nearest is not None, f"no experiment is left for {row}"
        assert differences(row, nearest) == {}, row
        experiments.remove(nearest)
    assert [experiment.label for experiment in experiments] == [], "experiments that no source prints"


def test_settings_table_covers_every_experiment():
    printed = {(paper.key, experiment.artifact) for paper in papers() for experiment in paper.experiments()}
    assert printed == set(PRINTED)


@pytest.mark.parametrize(("task", "model"), [("adding", "irnn"), ("adding", "wrnn"), ("cifar10", "wrnn")])
def test_experiments_on_their_own_data_are_not_defaults(task, model):
    """A run of these models has the data of the task's other models; `reproduce` has the paper's."""
    others = resolve(CATALOG, task, "gru", {})
    assert resolve(CATALOG, task, model, {}).spec.task_settings == others.spec.task_settings
    own = PAPERS["keller2024"].experiments(task, model)[0]
    reproduced = resolve(CATALOG, task, model, {}, experiment=own).spec.task_settings
    assert reproduced != others.spec.task_settings


def test_copy_with_other_fields_has_its_own_experiments():
    """What a record has computed from its fields does not follow its copy."""
    paper = papers()[0]
    first = paper.experiments()[0]
    copied = paper.model_copy(update={"key": "other"})
    assert copied.experiments()[0].paper == "other" != first.paper
    assert first.model_copy(update={"row": "other"}).identity != first.identity
    assert [artifact.name for artifact in paper.model_copy(update={"artifact": [], "experiment": []}).artifacts()] == []
