"""The studies there are."""

from __future__ import annotations

from typing import Any

from orthobench.errors import unknown
from orthobench.studies.dynamics import dynamics
from orthobench.studies.study import Study, StudyRun

HELFRICH = "Helfrich, Willmott, Ye. Orthogonal RNNs with Scaled Cayley Transform. ICML 2018"
MADURANGA = "Maduranga, Helfrich, Ye. Eigenvalue Normalized RNNs for Short Term Memory. AAAI 2020"
CHANG = "Chang, Chen, Haber, Chi. AntisymmetricRNN: A Dynamical System View on RNNs. ICLR 2019"


def _each(figure: str, task: str, models: tuple[str, ...], **settings: Any) -> tuple[StudyRun, ...]:
    return tuple(StudyRun(figure, task, model, settings) for model in models)


def _sizes(long: int, total: int, shorts: tuple[int, ...], **settings: Any) -> tuple[StudyRun, ...]:
    """ENRNNs whose long-term state has `long` units, with short-term ones added; then `total` units, split."""
    added = [("figure 6", long + short, short) for short in shorts]
    split = [("figure 7", total, short) for short in (*(short for short in shorts if short < total), total)]
    return tuple(
        StudyRun(
            figure, "adding", "enrnn", {"hidden_size": size, "short_size": short, "negative_ones": 0.3, **settings}
        )
        for figure, size, short in (*added, *split)
    )


def _gradient_norms(length: int) -> tuple[StudyRun, ...]:
    """The LSTM's forget bias is 1, as the paper has it "unless otherwise noted"."""
    common = {"sequence_length": length, "max_iterations": 300}
    return (
        StudyRun("figure 5", "adding", "scornn", common | {"hidden_size": 170, "negative_ones": 0.7}),
        StudyRun("figure 5", "adding", "lstm", common | {"hidden_size": 60, "forget_bias": 1.0}),
    )


STUDIES = (
    Study(
        name="orthogonality",
        title="Loss of orthogonality",
        paper=HELFRICH,
        figure="figure 4",
        shows="The full-capacity uRNN becomes less unitary with every epoch; scoRNN stays orthogonal up to rounding.",
        ours="No values are printed. The small version is on the copying problem, with 64 units.",
        runs={
            "paper": _each("figure 4", "mnist", ("scornn", "full_urnn"), hidden_size=512),
            "quick": _each("figure 4", "copying", ("scornn", "full_urnn"), hidden_size=64),
        },
    ),
    Study(
        name="gradient-norms",
        title="Gradient norms through time",
        paper=HELFRICH,
        figure="figure 5",
        shows="At the start scoRNN's gradient decays by less than an order of magnitude over 500 steps, the LSTM's "
        "steadily; after 300 iterations scoRNN's falls from 1e-3 to 1e-4, the LSTM's vanishes faster than before.",
        ours="Sizes are not printed: those of the adding problem are taken. The small version has 200 steps.",
        runs={
            "paper": _gradient_norms(500),
            "quick": _gradient_norms(200),
        },
    ),
    Study(
        name="heat-maps",
        title="Gradient of every state by every input",
        paper=MADURANGA,
        figure="figures 4 and 5",
        shows="The short-term state's gradient dies out quickly as the input lies further back (figure 4); the "
        "long-term state's stays large for every later step, a few inputs standing out as vertical lines (figure 5).",
        ours="Sequence length, sizes and norm are not known: T = 100, the sizes of the adding problem, the Frobenius "
        "norm, averaged over the run's probe batch after five epochs.",
        runs={
            "paper": _each("figures 4 and 5", "adding", ("enrnn",), sequence_length=100, epochs=5, probes="heat_map"),
            "quick": _each(
                "figures 4 and 5",
                "adding",
                ("enrnn",),
                sequence_length=30,
                train_size=5_000,
                epochs=5,
                hidden_size=40,
                learning_rate=1e-3,
                probes="heat_map",
            ),
        },
    ),
    Study(
        name="sizes",
        title="Sizes of the long-term and the short-term state",
        paper=MADURANGA,
        figure="figures 6 and 7",
        shows="With more short-term units the error falls, up to an optimum, and is near it over a wide range. Without "
        "a long-term state it never comes near zero, without a short-term one it passes the baseline after almost 6 "
        "epochs, if at all.",
        ours="The sizes are lost: 96 long-term units in figure 6 and 160 units in figure 7, as in the paper's program.",
        runs={
            "paper": _sizes(96, 160, (0, 16, 32, 64, 96, 128), sequence_length=750),
            "quick": _sizes(24, 40, (0, 8, 16, 24), train_size=5_000, epochs=6, learning_rate=1e-3),
        },
    ),
    Study(
        name="jacobians",
        title="Eigenvalues of the Jacobian",
        paper=CHANG,
        figure="study of the Jacobian's eigenvalues",
        shows="Slides about the paper plot the eigenvalues of models trained on noise-padded CIFAR-10, without "
        "numbers. By the paper's argument the antisymmetric models' are of modulus close to 1.",
        ours="The protocol is not stated: noise-padded CIFAR-10 with the sizes of its table, one "
        "training sequence, before and after training. The small version is on the adding problem.",
        runs={
            "paper": _each(
                "eigenvalues",
                "cifar10",
                ("lstm", "antisymmetric", "antisymmetric_gated"),
                noise_padded=True,
                probes="jacobian",
            ),
            "quick": _each(
                "eigenvalues",
                "adding",
                ("lstm", "antisymmetric", "scornn"),
                train_size=5_000,
                epochs=4,
                hidden_size=32,
                probes="jacobian",
            ),
        },
    ),
    Study(
        name="toy-dynamics",
        title="Dynamics of two units",
        paper=CHANG,
        figure="figure 1",
        shows="(a) two fixed points, (b) to (d) contraction to the origin, (e) away from it, (f) into it, (g) circles "
        "that slowly widen, (h) a roughly constant distance.",
        ours="50 steps from three starts (stars), later points darker; grey: the field tanh(W h) of the differential "
        "equation. The seed of (a) is not printed; (c) and (d) are the reflection and rotation of the caption's seeds.",
        compute=dynamics,
    ),
    Study(
        name="time",
        title="Minutes per epoch",
        paper=HELFRICH,
        figure="table 3",
        shows="The RNN takes 2.3 minutes at any size and the LSTM 5 to 5.6; scoRNN grows from 5.3 to 11.2, the uRNNs "
        "to 27.9 (full capacity) and 50.1 (restricted).",
        ours="Other machine, other programs: the shape of the table is what can be compared.",
        benchmark="models",
    ),
)

LSTM_SECONDS = {
    "PyTorch, fused kernel": 23.10,
    "PyTorch": 71.86,
    "TensorFlow, fused kernel": 49.10,
    "TensorFlow": 260.33,
}
"""An epoch of pixel MNIST by an LSTM: the speed table of slides on AntisymmetricRNN; sizes and machine not stated."""


def find(name: str) -> Study:
    """The study of this name.

    Raises:
        UsageError: there is none; the message names the nearest.
    """
    for study in STUDIES:
        if study.name == name:
            return study
    raise unknown("study", name, (study.name for study in STUDIES))
