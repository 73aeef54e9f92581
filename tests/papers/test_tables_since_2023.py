"""The tables printed since 2023, number by number: typed from print, in percent where print has percent."""

from __future__ import annotations

import pytest

from orthobench.analysis.paper_tables import build_table
from orthobench.papers import Printed, find_paper, papers

SLICE = """
LSTM|100.0 ± 0|100.0 ± 0|99.9 ± 0.1|100.0 ± 0
sLSTM|32.5 ± 0.4|100|27.7 ± 0.6|100
xLSTM[1:1]|53.5 ± 5.6|99.0 ± 1.9|29.3 ± 1.6|100
mLSTM|52.4 ± 10.5|99.9 ± 0.1|28.8 ± 3.1|53.0 ± 2.1
DeltaNet|49.8 ± 4.7|100|42.2 ± 4.8|57.8 ± 0.8
DeltaNet[-1,1]|46.7 ± 6.1|100|66.4 ± 8.8|97.7 ± 2.0
Gated DeltaNet|53.8 ± 8.8|100|42.8 ± 8.2|56.5 ± 1.9
Gated DeltaProduct[-1,1], rank 2|46.3 ± 6.6|100|78.4 ± 10.9|98.0 ± 1.4
RWKV-7|37.8 ± 5.0|88.1 ± 14.2|39.5 ± 6.1|51.1 ± 0.3
Mamba|48.4 ± 2.2|100|33.1 ± 6.6|54.2 ± 2.1
S4D|23.7 ± 1.1|68.7 ± 4.7|21.7 ± 0.4|51.2 ± 1.0
Transformer|24.4 ± 0.5|90.4 ± 10.4|23.6 ± 0.7|52.2 ± 0.4
D-SLiCE|69.5 ± 6.3|100|20.9 ± 0.1|100
BD-SLiCE (128, b = 4)|99.8 ± 0.2|85.9 ± 11.3|54.0 ± 12.5|95.3 ± 3.9
DPLR-SLiCE (57, r = 4)|81.1 ± 16.6|100|68.3 ± 19.3|91.0 ± 18.0
"""
GRAZZI = """
Transformer|.022|.031|.067
mLSTM|.087|.040|.114
sLSTM|1.000|.787|.178
Mamba [0, 1]|0|.095|.123
Mamba [-1, 1]|1.000|.241|.116
DeltaNet [0, 1]|.017|.314|.194
DeltaNet [-1, 1]|1.000|.971|.260
"""
PD_SSM = "PD-SSM|99.5 ± 0.7|99.7 ± 0.3|96.2 ± 3.4|99.9 ± 0.1"
PD_SSM_GROUPS = """
Gated DeltaProduct [-1, 1], n_h = 4|97.9|92.5|91.8|60.5|88.7|57.4|1.23
PD-SSM|100|100|100|100|100|100|1.07
complex diagonal, 2 layers|15.5
"""
MAMBA_3 = """
Mamba-3|100|98.51|87.75
Mamba-3 without rotation|2.27|1.49|.72
Mamba-2|.90|47.81|.88
Gated DeltaNet [-1, 1]|100|99.25|93.50
"""
CFC = """
augmented LSTM|100|89.71 ± 3.48
CT-RNN|50.42|50.79
RNN-Decay|60.28 ± 19.87|75.53
ODE-RNN|50.47|51.21
GRU-D|100|97.90
coRNN|100.00 ± 0|52.89 ± 1.25
Lipschitz RNN|100.00|52.84 ± 3.25
ODE-LSTM|100|98.89
LTC|100|49.11
CfC|100|99.42 ± .42
CfC-mmRNN|100|99.72
"""
WAVE_ADDING = """
wRNN, 27 channels|4e-6|2e-5|4e-5|8e-5|6e-5
iRNN|1e-5|4e-5|1e-4|.16|.16
"""
WAVE_IMAGES = """
wRNN, 16 channels|97.6|96.7|55.0
iRNN|98.5|92.5|51.3
"""


def numbers(printed: Printed) -> tuple[float, ...]:
    """Return the value, and the number after its sign of plus and minus if it has one."""
    assert printed.value is not None
    return (printed.value,) if printed.error is None else (printed.value, printed.error)


@pytest.mark.parametrize(
    ("key", "artifact", "text", "scale"),
    [
        ("walker2025", "table 2", SLICE, 100),
        ("grazzi2025", "table 3", GRAZZI, 1),
        ("terzic2025", "table 2", PD_SSM, 100),
        ("terzic2025", "table 3", PD_SSM_GROUPS, 100),
        ("lahoti2026", "state tracking", MAMBA_3, 100),
        ("hasani2022", "table 4", CFC, 100),
        ("keller2024", "table 1", WAVE_ADDING, 1),
        ("keller2024", "table 2", WAVE_IMAGES, 100),
    ],
)
def test_rows_and_numbers_match_the_published_tables(key, artifact, text, scale):
    paper = find_paper(key)
    (described,) = (each for each in paper.artifacts() if each.name == artifact)
    table = build_table(paper, described, {})
    labels = [column.label for column in table.columns]
    shown = [
        (row.label, [numbers(row.cells[label].printed) for label in labels if label in row.cells]) for row in table.rows
    ]
    lines = [line.split("|") for line in text.strip().splitlines()]
    assert [label for label, _ in shown] == [label for label, *_ in lines]
    for (label, own), (_, *cells) in zip(shown, lines, strict=True):
        printed = [tuple(float(number) / scale for number in cell.split("±")) for cell in cells]
        assert [pytest.approx(cell, rel=1e-9, abs=1e-12) for cell in printed] == own, label


def test_log_of_fitzhugh_nagumo_has_the_published_errors():
    """Its validation errors, and the test error of the best of them."""
    (experiment,) = find_paper("rusch2022lem").experiments("fitzhugh_nagumo")
    final, log = experiment.printed
    assert final.value == 0.0023766
    assert log.curve == [
        (1, 0.26889), (5, 0.14072), (10, 0.09153), (20, 0.04523), (50, 0.02260), (100, 0.01123), (200, 0.00566),
        (300, 0.00343), (400, 0.00273),
    ]  # fmt: skip


def test_rows_without_runs_state_a_lasting_reason():
    """A reason is one that stays true, not that nobody has made the experiment."""
    reasons = [row.reason for paper in papers() for row in paper.elsewhere]
    assert reasons
    assert [reason for reason in reasons if "yet" in reason.split() or "No experiment" in reason] == []
