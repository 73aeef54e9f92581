"""The report: what it says, and what it holds."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path

import numpy as np
import pytest
from support.databases import experiment
from support.pages import HOSTILE
from support.pages import figures as figures_of

from orthobench.analysis.conditions import collect
from orthobench.metric import undefined
from orthobench.reporting.account.captions import capitalized
from orthobench.reporting.figures.figures import SCORES, condition_figures, without_score
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.templates import breakable, cited
from orthobench.store import MetricRow, Run, Status, open_store

SCRIPTS_OF_TWO_CONDITIONS = (
    10  # Plotly, index, environments, twice figures and runs, about, and the first and last script, which execute
)


class Text(html.parser.HTMLParser):
    """The page's visible text, and every address it would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.scripts = 0
        self.hidden = False
        self.feed(page)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.hidden = tag in ("script", "style")
        self.scripts += tag == "script"
        self.addresses += [value for name, value in attributes if name in ("src", "href") and value[:1] != "#"]

    def handle_endtag(self, tag):
        self.hidden = False

    def handle_data(self, data):
        if not self.hidden:
            self.words.append(data)


def test_page_has_measured_and_published_numbers(page, tmp_path):
    read = Text(page.read_text("utf-8"))
    for part in (
        "scornn",
        "lstm",
        "2 of 2",
        "final: median [95 %]",
        "drops towards zero",
        "precipitous drop",
        "scoRNN 2018, figure 2",
        "sequence_length 10 (paper 200)",
        "no paper's result",
        "ranked by the median of their ends",
        "By an LSTM's c at step t, it is the total derivative, with all paths through h.",
        "the matrix W by which a step multiplies the state",
        "agrees if the interval lies within the tolerance around it, 0.005 of a fraction, a factor of 1.5 of an error",
        "fewer than three seeds",
    ):
        assert part in read.text
    with open_store(str(tmp_path / "results.db")) as store:
        for condition in collect(store):
            assert f"baseline {condition.baseline:.4g}" in read.text
            for variant in condition.variants:
                assert f"{variant.final.value:.4g}" in read.text
                assert f"{variant.median.value:.4g}" in read.text
                assert f"{variant.run.parameter_count:,}" in read.text


def test_page_needs_no_network(page):
    text = page.read_text("utf-8")
    read = Text(text)
    assert read.addresses == ["data:,"]
    assert not re.search(r"@import|url\(", text[: text.index("<body")])
    assert read.scripts == SCRIPTS_OF_TWO_CONDITIONS
    assert page.stat().st_size < 3.5e6


def test_links_of_the_menu_lead_somewhere_without_the_script(page):
    markup = page.read_text("utf-8")
    menu = markup.partition('<nav aria-label="Pages">')[2].partition("</nav>")[0]
    targets = re.findall(r'href="#([^"]+)"', menu)
    assert len(targets) >= 5
    assert [target for target in targets if f' id="{target}"' not in markup] == []


def assert_drawn(line: dict, x, y) -> None:
    """The line has all of these points, each to five digits."""
    np.testing.assert_allclose(line["x"], x, rtol=1e-6)
    np.testing.assert_allclose(line["y"], y, rtol=5e-5)


NAMES = {"scornn": "scoRNN", "lstm": "LSTM"}


def trained_for(run: Run) -> float:
    """The seconds of training: with one thread, CPU time, of which training has its share of the wall clock."""
    wall = {phase: spent for phase, spent in run.seconds.items() if phase != "cpu"}
    share = run.seconds["cpu"] / sum(wall.values()) if run.environment.facts["threads"] == 1 else 1
    return wall["train"] * share


def test_figures_have_the_numbers_of_the_database(page, tmp_path):
    with open_store(str(tmp_path / "results.db")) as store:
        runs = {model: [run.id for run in store.runs(task="adding", model=model)] for model in ("scornn", "lstm")}
        zero = collect(store)[0].baseline
        counts = {model: [run.parameter_count for run in store.runs(task="adding", model=model)] for model in runs}
        (key,) = {run.condition for run in store.runs(task="adding")}
        metrics = {id: store.metrics([id]) for ids in runs.values() for id in ids}
        traces = {id: store.traces([id]) for ids in runs.values() for id in ids}
        seconds = {model: [trained_for(run) for run in store.runs(task="adding", model=model)] for model in runs}
    figures = figures_of(page.read_text("utf-8"))[key]
    scores = {"orthogonality", "orthogonality_jacobian", "orthogonality_inside"}
    assert set(figures) == scores | {"curves", "gradients", "seeds", "parameters", "seconds"}

    def by_seed(model: str, split: str, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Iterations, and the values `[seed, iteration]`."""
        rows = [[m for m in metrics[id] if (m.split, m.name) == (split, name)] for id in runs[model]]
        assert len(rows) == 2
        return np.array([m.iteration for m in rows[0]]), np.array([[m.value for m in seed] for seed in rows])

    def assert_band(lines: list[dict], model: str, split: str, name: str, label: str) -> None:
        """Three lines: the highest seed, the lowest, and the median, which alone stands in the legend."""
        iterations, values = by_seed(model, split, name)
        for line, y in zip(lines, (values.max(0), values.min(0), np.median(values, axis=0)), strict=True):
            assert_drawn(line, iterations / 4, y)  # 4 iterations an epoch
        assert [line.get("name") for line in lines if line.get("showlegend", True)] == [label]

    curves = [line for line in figures["curves"]["data"] if "text" not in line]  # without the marks of ends
    for model in ("scornn", "lstm"):
        own = [line for line in curves if line.get("meta", {}).get("model") == model]
        assert_band(own, model, "test", "mse", NAMES[model])
    assert curves[6:] == []  # because the baseline is outside the frame, as the caption says
    assert f"below the frame: baseline, {zero:.3g}" in page.read_text("utf-8")

    lines = [line for line in figures["orthogonality"]["data"] if "text" not in line]
    assert len(lines) == 3  # the LSTM's matrices are inside its gates
    assert_band(lines, "scornn", "probe", "orthogonality/W", "scoRNN")
    lines = [line for line in figures["orthogonality_jacobian"]["data"] if "text" not in line]
    for model in ("scornn", "lstm"):
        own = [line for line in lines if line["meta"]["model"] == model]
        assert_band(own, model, "probe", "orthogonality_jacobian/J", NAMES[model])
    lines = [line for line in figures["orthogonality_inside"]["data"] if "text" not in line]
    for number, gate in enumerate(("W_f", "W_g", "W_i", "W_o")):
        own = lines[3 * number : 3 * number + 3]
        assert_band(own, "lstm", "probe", f"orthogonality_inside/{gate}", f"LSTM {gate}")

    lines = {line["name"]: line for line in figures["gradients"]["data"] if "name" in line}
    states = [("scornn", "h"), ("lstm", "c"), ("lstm", "h")]
    assert lines.keys() == {f"{NAMES[model]} {state}, epoch {epoch}" for model, state in states for epoch in (0, 3)}
    for model, state in states:
        for epoch in (0, 3):
            norms = [
                trace.values
                for id in runs[model]
                for trace in traces[id]
                if (trace.name, trace.iteration) == (f"gradient_norm/{state}", 4 * epoch)
            ]
            assert np.shape(norms) == (2, 10)
            assert_drawn(lines[f"{NAMES[model]} {state}, epoch {epoch}"], range(1, 11), np.median(norms, axis=0))

    sizes = {"scornn": 28 + 16 + 8 + 8 + 1, "lstm": 4 * (64 + 16 + 8) + 8 + 1}  # of 8 units, with the output map
    assert counts == {model: [size] * 2 for model, size in sizes.items()}
    totals = {model: np.mean(spent) for model, spent in seconds.items()}
    for figure, costs in (("parameters", sizes), ("seconds", totals)):
        for trace in figures[figure]["data"]:
            (model,) = [model for model, name in NAMES.items() if name == trace["name"]]
            ends = by_seed(model, "test", "mse")[1].min(1)
            is_median = trace["showlegend"]
            assert trace["x"] == pytest.approx([costs[model]] * len(trace["x"]))
            np.testing.assert_allclose(sorted(trace["y"]), [np.median(ends)] if is_median else sorted(ends), rtol=5e-5)


def test_empty_or_unfinished_database_is_reported(orthobench, tiny_options, tmp_path):
    with open_store(str(tmp_path / "results.db"), create=True):
        pass
    assert orthobench("report", "--html").code == 0
    assert "Nothing measured yet" in Text((tmp_path / "reports" / "report.html").read_text("utf-8")).text

    orthobench("run", "adding", "rnn", *tiny_options)
    with open_store(str(tmp_path / "results.db")) as store:
        run = store.runs()[0]
        store.update(run.id, {"status": Status.DIVERGED, "final_value": None, "best_value": None})
        store.rewind(run.id, -1, "t")
    assert orthobench("report", "--html").code == 0
    text = Text((tmp_path / "reports" / "report.html").read_text("utf-8")).text
    assert "1 diverged" in text
    assert "0 of 1" in text


def test_half_finished_sweep_is_reported(orthobench, tiny_options, tmp_path):
    orthobench("sweep", "adding", "--models", "rnn", "--seeds", "2", *tiny_options)
    with open_store(str(tmp_path / "results.db")) as store:
        store.update(store.runs()[0].id, {"status": Status.INTERRUPTED, "final_value": None})
    assert orthobench("report", "--html").code == 0
    text = Text((tmp_path / "reports" / "report.html").read_text("utf-8")).text
    assert "1 finished 1 interrupted" in text
    assert "1 of 2" in text


def test_names_are_escaped(hostile_page):
    read = Text(hostile_page.read_text("utf-8"))
    assert read.scripts == SCRIPTS_OF_TWO_CONDITIONS - 2
    assert HOSTILE in " ".join(read.words)


@pytest.mark.parametrize(("name", "title"), [("rate of the LSTM", "Rate of the LSTM"), ("MSE", "MSE"), ("", "")])
def test_titles_keep_the_capitals_of_names(name, title):
    assert capitalized(name) == title


def test_setting_in_a_title_keeps_its_capitals(orthobench):
    small = ("train_size=20", "test_size=20", "longest=4", "epochs=1", "hidden_size=4", "batch_size=10")
    for group in ("S3", "A5"):
        options = (option for setting in (f"group={group}", *small) for option in ("-s", setting))
        orthobench("run", "group_word", "rnn", *options)
    text = Text(Path(orthobench("report", "--html").out.strip()).read_text("utf-8")).text
    assert "words over S3" in text
    assert "words over s3" not in text


def test_name_breaks_before_its_capitals_and_stays_text():
    assert breakable("AntisymmetricRNN with gating") == "Antisymmetric<wbr>RNN with gating"
    assert breakable("scoRNN") == "sco<wbr>RNN"
    assert breakable("minGRU <b>") == "min<wbr>GRU &lt;b&gt;"


def test_note_has_code_and_links_its_discrepancy():
    assert cited("D-04: `gradient=both` takes <all>.") == (
        '<a href="#D-04" title="where sources disagree">D-04</a>: <code>gradient=both</code> takes &lt;all&gt;.'
    )


def test_runs_without_a_score_of_their_step_are_named(database):
    """Runs of earlier versions lack it, and the matrices that they recorded for gates are not drawn as a step's."""
    runs = {model: database.run(experiment(model, "final", []), 0, [0.5, 0.4]) for model in ("rnn", "lstm", "gru")}
    store = database.store
    (condition,) = collect(store)
    assert without_score(condition) == ["rnn, lstm, gru (of a version that does not measure it)"]
    store.log(runs["rnn"].id, [MetricRow("probe", "orthogonality_jacobian/J", 0, 0, 0.5)], [], {})
    gone = [MetricRow("probe", name, 0, 0, value) for name, value in undefined("no_state").items()]
    store.log(runs["gru"].id, gone, [], {})
    store.log(runs["lstm"].id, [MetricRow("probe", "orthogonality/W_i", 0, 0, 2.0)], [], {})
    (condition,) = collect(store)
    assert without_score(condition)[0] == "lstm (of a version that does not measure it)"
    assert without_score(condition)[1].startswith("gru (it has no state")
    drawn = condition_figures(condition, Styles([condition]))
    names = {score: {line.get("name") for line in drawn[score][1].data} - {None} for score in SCORES if score in drawn}
    assert names == {"orthogonality_jacobian": {"rnn"}, "orthogonality_inside": {"lstm W_i"}}
