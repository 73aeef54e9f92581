"""The generated pages of the documentation site: nothing of the code, the papers and the results is missing."""

from __future__ import annotations

import html
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from orthobench.cli import app
from orthobench.papers import find_study, papers
from orthobench.plugins import Catalog
from orthobench.reporting.account.commentary import read_commentary
from orthobench.reporting.tables.reproduction import everything_measured
from orthobench.settings import describe_settings
from orthobench.store import Status
from orthobench.task import TrainingSettings

pytest.importorskip("latex2mathml", reason="the extra orthobench[docs] is not installed")

from support.length_variants import with_horizons
from support.schemas import add_revision, write_older

from workshop.website import api, equations, figures, findings, hooks, links, markdown, pages, plugins, readme, results

CATALOG = Catalog()
MODELS = CATALOG.names("model")


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The generated pages, with letters in place of entities."""
    return {path: html.unescape(text) for path, text in pages.generated().items()}


def commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(
    ("path", "command"),
    [pytest.param(path, command, id=" ".join(path)) for path, command in commands(typer.main.get_command(app))],
)
def test_command_page_has_options_and_help(path, command, generated):
    text = generated[f"commands/{path[0]}.md"]
    assert f"orthobench {' '.join(path)}" in text
    assert " ".join(command.help.split("\n\n")[0].split()) in text
    for parameter in command.params:
        assert parameter.hidden or not parameter.help or " ".join(parameter.help.split()) in text
        for option in parameter.opts:
            assert parameter.hidden or option in text.lower() or (parameter.metavar or "") in text


@pytest.mark.parametrize("kind", ["model", "task", "probe"])
def test_every_plugin_has_a_page_and_an_entry(kind, generated):
    for name in CATALOG.names(kind):
        assert CATALOG.load(kind, name).title.lower() in generated[f"{kind}s/{name}.md"].lower()
        assert f"[`{name}`]({name}.md)" in generated[f"{kind}s/index.md"]


@pytest.mark.parametrize(
    ("page", "settings"),
    [
        ("reference/training.md", TrainingSettings),
        *((f"models/{name}.md", CATALOG.load("model", name).Settings) for name in MODELS),
        *((f"tasks/{name}.md", CATALOG.load("task", name).Settings) for name in CATALOG.names("task")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_setting_has_its_default_and_description(page, settings, generated):
    rows = [line for line in generated[page].splitlines() if line.startswith("| `")]
    for setting in describe_settings(settings):
        (row,) = [row for row in rows if row.startswith((f"| `{setting.name}` |", f"| `{setting.name}` ("))]
        assert setting.meaning in row
        assert setting.meaning
        assert not setting.default or f"`{setting.default}`" in row


@pytest.mark.parametrize("name", MODELS)
def test_model_page_has_equations_paper_and_measurements(name, generated):
    text = pages.generated()[f"models/{name}.md"]
    formulas = re.findall(r"<math.*?</math>", text)
    assert formulas
    for formula in formulas:
        ElementTree.fromstring(html.unescape(formula).replace("&", "&amp;").replace("<mo><</mo>", "<mo>&lt;</mo>"))
    assert CATALOG.load("model", name).paper in generated[f"models/{name}.md"]
    assert "### In the gate's baseline" in text
    assert ("### Speed" in text) == (name in results.time_per_step())


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("scornn", "matrices of a step: `W`; numbers of the state: 170; the step's Jacobian: computed"),
        ("goru", "matrices of a step: `Q`; matrices inside gates and derivatives: `W_r`, `W_g`; numbers"),
        ("kru", "matrices of a step: `W`; numbers of the state: 1,024; the step's Jacobian: estimated"),
    ],
)
def test_model_page_names_whose_distance_from_orthogonal_is_measured(name, scores, generated):
    assert (
        f"[Distance from orthogonal](../tasks-and-models.md#distance-from-orthogonal): {scores}"
        in (generated[f"models/{name}.md"])
    )


def test_results_page_compares_layers_of_other_packages(generated):
    assert re.search(r"^\| `torch\.nn:GRU` \| \d+", generated["results/index.md"], re.M)


def test_every_word_in_an_equation_is_known():
    """A name that the notation does not know would be set as text."""
    words = set()
    for name in MODELS:
        module = __import__(CATALOG.load("model", name).__module__, fromlist=["__doc__"])
        for equation in equations.docstring_parts(module.__doc__)[1]:
            words |= set(" ".join(re.findall(r"\\text\{ (.*?) \}", equations.latex(equation))).split())
    english = "after all and at each else elsewhere every for if in likewise of or start the to what where with without"
    assert words - set(english.split()) == {"add", "loss", "steps", "values"}


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("W = (I + A)^{-1} (I - A) D", r"W = (I + A)^{-1} (I - A) D"),
        ("A^T = -A", r"A^{\top} = -A"),
        ("c_t = sigmoid(o) o c_{t-1}", r"c_{t} = \operatorname{sigmoid}(o) \odot  c_{t-1}"),
        ("W = W_1 (x) ... (x) W_F", r"W = W_{1} \otimes  \cdots  \otimes  W_{F}"),
        ("B = G W* - W G*", r"B = G W^{*}  - W G^{*}"),
        ("h = [Re h; Im h]", r"h = \begin{bmatrix}\operatorname{Re} h \\ \operatorname{Im} h\end{bmatrix}"),
        ("W = [[A, 0], [B, C]]", r"W = \begin{bmatrix}A & 0 \\ B & C\end{bmatrix}"),
        ("h_t = relu(W h_{t-1})", r"h_{t} = \operatorname{relu}(W h_{t-1})"),
        ("lambda = exp(-nu + i theta)", r"\lambda  = \operatorname{exp}(-\nu  + i \theta )"),
        ("B <- 0 after every K steps", r"B \leftarrow  0 \text{ after every } K \text{ steps }"),
    ],
)
def test_notation_becomes_latex(plain, latex):
    assert equations.latex(plain) == latex


def test_docstring_is_split_into_sentence_equations_and_text():
    parts = equations.docstring_parts("First.\n\n    a = b,   c = d\n    e = f\n\nThe\nrest.")
    assert parts == ("First.", ["a = b", "c = d", "e = f"], ["The rest."])


def test_table_in_a_docstring_becomes_a_table():
    (rows,) = equations.docstring_parts("First.\n\n| a | b |\n| --- | --- |\n| c_d | [1, 2] |")[2]
    assert plugins.prose(rows) == "| a | b |\n| --- | --- |\n| c&#95;d | &#91;1, 2&#93; |\n"


def test_paper_page_has_every_published_number_and_claim(generated):
    for paper in papers():
        text = " ".join(generated[f"papers/{paper.key}.md"].replace("\\", "").split())
        assert paper.title in text
        for artifact in paper.artifacts():
            for claim in artifact.claims:
                assert claim["text"] in text
            for experiment in paper.experiments_in(artifact.name) if artifact.shows == "table" else []:
                for printed in experiment.printed_in(artifact.name):
                    assert printed.text in text


def test_python_reference_is_complete():
    import orthobench
    import orthobench.nn

    text = "\n".join(api.api_pages().values())
    assert all(f".{name}\n" in text for name in orthobench.__all__ if not name.startswith("__"))
    assert all(f"`{name}`" in text for name in orthobench.nn.cells.LAYERS)


def test_measured_speeds_and_baseline_values_are_found():
    assert {"scornn", "lstm", "mamba"} <= set(results.time_per_step()) <= set(MODELS)
    means = {row[2]: float(row[3]) for row in results.gate_values("scornn")}
    assert 0 < means["cross&#95;entropy"] < 0.02
    assert means["recall"] > 0.99


def test_documents_show_what_the_database_holds():
    assert readme.papers_table().count("\n") > 5
    generated = {**readme.with_tables(), **readme.pictures()}
    for file, content in generated.items():
        stored = file.read_text("utf-8")
        if identifier := re.search(r"<dc:identifier>.*?</dc:identifier>", content):
            assert identifier[0] in stored, "run `make readme`"  # its bytes depend on matplotlib's version
        else:
            assert stored == content, "run `make readme`"
    shown = re.findall("<!-- table: (.*?) -->", findings.PAGE.read_text("utf-8"))
    assert sorted(shown) == sorted(findings.tables(results.everything()))


def test_remarks_and_the_account_are_those_of_the_database():
    views = results.everything().papers
    assert list(read_commentary(results.COMMENTARY).outdated(views)) == []
    assert everything_measured(views) in results.ACCOUNT.read_text("utf-8"), "run `make report`"


def test_reading_the_results_does_not_change_the_database(monkeypatch, tmp_path):
    """Also where the database has an older schema, which opening it would upgrade."""
    folder = tmp_path / "here"
    folder.mkdir()
    database = folder / "results.db"
    write_older(database)
    old = database.read_bytes()
    for leftover in folder.glob(".*"):
        leftover.unlink()
    add_revision(tmp_path, monkeypatch.setattr)
    monkeypatch.setattr(results, "DATABASE", database)
    results.everything.__wrapped__()
    assert database.read_bytes() == old
    assert [path.name for path in folder.iterdir()] == ["results.db"]


def test_navigation_has_every_document(monkeypatch):
    from mkdocs.config import load_config

    monkeypatch.setattr(links, "documents", lambda: [*sorted(p.name for p in Path("docs").glob("*.md")), "new.md"])
    monkeypatch.chdir(links.ROOT)
    config = hooks.on_config(load_config(str(links.ROOT / "mkdocs.yml")))
    named = hooks._paths(config.nav)
    assert {*links.documents(), *pages.generated()} <= named


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("check.md", "../checks/baseline.toml", "checks/baseline.toml"),
        ("check.md", "../CONTRIBUTING.md#tests", "CONTRIBUTING.md#tests"),
        ("CONTRIBUTING.md", "docs/check.md", "check.md"),
        ("index.md", "docs/start.md", "start.md"),
        ("start.md", "../README.md", "index.md"),
        ("reports/REPRODUCTION.md", "../docs/check.md", "../check.md"),
        ("models/scornn.md", "../discrepancies.md", "../discrepancies.md"),
        ("check.md", "https://example.org/docs/a.md", "https://example.org/docs/a.md"),
    ],
)
def test_links_of_a_document_lead_to_pages_of_the_site(page, link, expected):
    assert links.for_site(f"see [it]({link})", page) == f"see [it]({expected})"


def test_text_is_escaped():
    import markdown as parser

    text = "a_b* <c> [d] | e \\ #f & `g|h`"
    assert parser.markdown(markdown.escape(text)) == (
        "<p>a&#95;b&#42; &#60;c&#62; &#91;d&#93; &#124; e &#92; &#35;f &#38; <code>g|h</code></p>"
    )


def test_discrepancy_in_a_docstring_links_to_its_entry():
    assert plugins.prose("as in D-01") == "as in [D-01](../discrepancies.md)"


def test_findings_tell_fitting_from_keeping_the_state():
    """Models that keep every length, lose the state, never had it and learn on or do not, and diverge."""
    rates = {"learning_rate": 0.01}
    spec = {"task_settings": {"test_longest": 24}, "model_settings": rates | {"recurrent_learning_rate": 1e-6}}
    spec["model_version"] = "0"
    ended = {"total_iterations": 9, "solved_at": None, "status": Status.FINISHED}
    runs = [SimpleNamespace(model="scornn", spec=spec, **ended)]
    models = [
        with_horizons("lstm", (0.0, math.inf), (0.0, math.inf), (0.0, 30.0)),
        with_horizons("lru", (0.0, 60.0)),
        with_horizons("kru", (0.0, 0.0), losses=[2.0, 1.0, 1.0, 0.5]),
        with_horizons("rnn", (0.0, 0.0), losses=[2.0, 1.0, 1.0, 0.95]),
        with_horizons("gru", (0.0, math.inf), diverged=1),
    ]
    conditions = [("S3", SimpleNamespace(variants=models, metric=SimpleNamespace(sign=-1)))]
    study = SimpleNamespace(study=find_study("state-tracking"), conditions=conditions, runs=runs)
    assert "| S3 | 3 | 5 | 1 | 1 | 1 | 1 | 1 | lstm (2 of 3) |" in findings.outcomes_table(study)
    trained = findings.runs_table([study])
    assert "| models with a recurrent rate | 1 |" in trained
    assert "| smallest recurrent rate | 1e-06 |" in trained
    assert "| iterations, at most | 9 |" in trained
    assert "| longest test | 24 |" in trained
    assert "| changed since | scornn (version 0, now " in trained
    totals = findings.totals_table(study, [])
    assert "| models that keep | 1 | gated |" in totals
    assert "| models that lose | 1 | linear |" in totals


def test_title_of_the_first_screen_and_of_readme_stands():
    """One cell learns all four tasks, and AUSSM alone copies of those outside the orthogonal family."""
    matrix = figures.matrix()
    tuned = [number for number, column in enumerate(matrix.columns) if column.block == "tuned"]
    rows = [row for row in matrix.rows if all(row.cells[number] for number in tuned)]

    def learn(numbers):
        return {row.model for row in rows if all(row.cells[number].score >= 0.9 for number in numbers)}

    assert len(tuned) == 4
    assert len(rows) == len({row.model for row in rows}) == 43
    assert learn(tuned) == {"nnrnn"}
    (copying,) = (number for number in tuned if matrix.columns[number].condition.task == "copying")
    assert learn([number for number in tuned if matrix.columns[number].label.split(",")[0] != "parity"]) == {
        "nnrnn",
        "enrnn",
    }
    assert {row.model for row in rows if row.model in learn([copying]) and row.family != "orthogonal"} == {"aussm"}
    title = "nnRNN alone learns all four tasks on which 43 cells were tuned alike"
    assert f"{title}." in " ".join((links.ROOT / "README.md").read_text().split())
    assert read_commentary(results.COMMENTARY).title == title


def test_pages_of_measured_models_and_tasks_open_with_a_figure(generated):
    drawn = figures.pictures()
    measured = {row.model for row in figures.matrix().rows if ":" not in row.model}
    assert len(measured) >= 36
    for name in measured:
        head = generated[f"models/{name}.md"].partition("## Settings")[0]
        assert f"]({name}-dark.svg#only-dark)" in head
        ElementTree.fromstring(drawn[f"models/{name}-light.svg"])
    for name in {condition.task for condition in results.everything().conditions}:
        head = generated[f"tasks/{name}.md"].partition("## Metrics")[0]
        assert f"tasks/{name}-light.svg" in drawn or f"]({name}-curves.svg)" in head, name
        assert (f"]({name}-curves.svg)" in head) == (f"tasks/{name}-curves.svg" in drawn)
