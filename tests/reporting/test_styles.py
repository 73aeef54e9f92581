"""Models' lines can be told apart: by colour, with every colour blindness, in greyscale, and by dash and symbol."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from itertools import combinations, product

import numpy as np
import pytest
from support.databases import RunDatabase, experiment
from support.pages import add_run
from support.records import columns_of

from orthobench.analysis.conditions import collect
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.reporting.figures.drawing import OUTCOME_SYMBOLS, PUBLISHED_SYMBOL, SOLVED_SYMBOL
from orthobench.reporting.figures.figures import learning_curves
from orthobench.reporting.figures.stills import MARKERS, compose, same_everywhere
from orthobench.reporting.figures.styles import (
    ALL_SYMBOLS,
    DASHES,
    GREY,
    PALETTE,
    PARTS,
    Styles,
    look_of,
    shipped_styles,
)
from orthobench.store import open_store

GROUNDS = {"light": ("#FFFFFF", "#F5F7F9"), "dark": ("#14171B", "#1D2228")}
"""The page's ground and that of its cards."""
CSS = files("orthobench.reporting.page").joinpath("page.css").read_text("utf-8")
SHOWN = [
    tuple(color.upper() for color in re.findall(r"--model-\d+: (#\w+);", block))
    for block in re.findall(r"--model-0:[^}]*?--model-12: #\w+;", CSS)
]
PALETTES = dict(zip(GROUNDS, SHOWN, strict=True))
"""The page's colours of models on each ground; the last one is the grey."""

# Machado, Oliveira and Fernandes, 2009, table 1, severity 1.0; for linear RGB
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(color: str) -> np.ndarray:
    """The sRGB colour's linear components (IEC 61966-2-1)."""
    parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    return float(XYZ[1] @ linear(color))


def contrast(first: str, second: str) -> float:
    """WCAG 2.2's contrast ratio."""
    dark, bright = sorted((luminance(first), luminance(second)))
    return (bright + 0.05) / (dark + 0.05)


def lab(components: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB, white D65."""
    ratio = XYZ @ np.clip(components, 0, 1) / WHITE
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_formulas_match_the_standards():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)
    np.testing.assert_allclose(lab(linear("#FF0000")), [53.24, 80.09, 67.20], atol=0.05)
    for matrix in SIGHT.values():
        np.testing.assert_allclose(np.sum(matrix, axis=1), 1, atol=2e-6)  # grey stays grey


@pytest.mark.parametrize("ground", PALETTES)
def test_colours_contrast_with_the_background(ground):
    for color in PALETTES[ground]:
        for behind in GROUNDS[ground]:
            assert contrast(color, behind) >= 3, (color, behind)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("ground", PALETTES)
def test_colours_differ_with_every_colour_vision(ground, sight):
    """A CIE76 difference of 17 is far above 2.3, the just noticeable one."""
    seen = [lab(np.array(SIGHT[sight]) @ linear(color)) for color in PALETTES[ground][:-1]]
    least = min(np.linalg.norm(first - second) for first, second in combinations(seen, 2))
    assert least >= (26 if sight == "normal" else 17)


def test_page_has_the_palettes():
    assert PALETTES["light"] == (*PALETTE, GREY)
    assert (len(PALETTES["dark"]), PALETTES["dark"][-1]) == (len(PALETTES["light"]), GREY)
    for ground in GROUNDS.values():
        for color in ground:
            assert color.lower() in CSS


def test_every_symbol_has_its_own_swatch():
    shapes = dict(re.findall(r"^\.swatch\.([\w-]+) \{([^}]*)\}", CSS, re.M))
    assert {*ALL_SYMBOLS} - {"square"} == set(shapes)
    assert len(set(shapes.values())) == len(shapes)


def test_no_curve_has_a_symbol_that_means_something():
    """Such as "published" or "solved"; in still pictures neither, where all symbols look different."""
    meaning = {PUBLISHED_SYMBOL, SOLVED_SYMBOL, *OUTCOME_SYMBOLS.values()}
    assert meaning.isdisjoint(ALL_SYMBOLS)
    assert {symbol.removesuffix("-open") for symbol in (*ALL_SYMBOLS, *meaning)} == set(MARKERS)
    assert len(set(MARKERS.values())) == len(MARKERS)


def test_every_shipped_model_is_distinct_without_colour():
    assert shipped_styles().keys() == set(Catalog().names("model"))
    models: dict[tuple[str, str], list[str]] = {}
    for model, style in shipped_styles().items():
        models.setdefault((style.dash, style.symbol), []).append(model)
    free = [look for look in product(DASHES, ALL_SYMBOLS) if look not in models]
    shared = {look: names for look, names in models.items() if len(names) > 1}
    assert not shared, f"free looks: {', '.join(map(' '.join, free))}"


def test_looks_of_models_do_not_change():
    """The number is the model's place in a table with two colours in each column and a dash in each row."""
    published = {"scornn": 0, "lstm": 1, "rnn": 6, "gru": 9, "nnrnn": 12, "lru": 17, "lem": 21, "irnn": 24, "mamba": 35}
    for model, rank in published.items():
        style = shipped_styles()[model]
        row, column = divmod(rank, 6)
        assert (style.color, style.dash) == (PALETTE[column + 6 * (row % 2)], DASHES[row])
        assert style.symbol == ALL_SYMBOLS[(column + row) % 6]


def test_invalid_look_is_one_line():
    with pytest.raises(UsageError, match=r"the look 'dotted square' of the model mine should be a dash \(solid, .*\)"):
        look_of("mine", "dotted square")


def test_model_looks_the_same_in_any_selection(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        database = RunDatabase(store)
        for model in ("lru", "rnn"):
            database.run(experiment(model, "last", []), 0, test=[1.0, 0.5])
        both = collect(store)
        alone = collect(store, store.runs(model="lru"))
    of_both = Styles(both).of(both[0], both[0].variants[0])
    assert both[0].variants[0].run.model == "lru"
    assert of_both == Styles(alone).of(alone[0], alone[0].variants[0]) == Styles([]).of_model("lru")


def test_variants_of_a_model_and_their_gates_differ(tmp_path):
    with open_store(str(tmp_path / "made.db"), create=True) as store:
        database = RunDatabase(store)
        database.run(experiment("rnn", "last", []), 0, test=[1.0, 0.5])
        for rate in (0.1, 0.2, 0.3, 0.4):
            database.run(experiment("lstm", "last", []), 0, test=[1.0, 0.5], learning_rate=rate)
        (condition,) = collect(store)
    styles = Styles([condition])
    lines = [styles.of(condition, variant, part) for variant in condition.variants for part in range(PARTS)]
    assert len({(line.dash, line.symbol) for line in lines}) == len(lines) == 5 * PARTS
    assert {line.color for line in lines} == {styles.of_model(model).color for model in ("rnn", "lstm")}
    many = replace(condition, variants=[replace(condition.variants[0], label=str(i)) for i in range(100)])
    assert len({styles.of(many, variant) for variant in many.variants}) >= 72


def report(folder, models):
    """The condition of a database with a run of each model."""
    with open_store(str(folder / "made.db"), create=True) as store:
        for number, model in enumerate(models):
            key = add_run(store, "rnn", settings={"hidden_size": str(200 + number)})
            run = store.find(key)
            store.update(run.id, columns_of(run.spec | {"model": model}))
        (condition,) = collect(store)
    assert len(condition.variants) == len(models)
    return condition


@pytest.mark.slow
@pytest.mark.parametrize("plugins", [1, 12, 24])
def test_all_models_of_a_figure_differ(tmp_path, plugins):
    """Those from outside too, though the shipped ones have every pair of a dash and a filled symbol."""
    shipped = shipped_styles()
    condition = report(tmp_path, [*shipped, *(f"my_cell_{number:03}" for number in range(plugins))])
    styles = Styles([condition])
    lines = {variant.run.model: styles.of(condition, variant) for variant in condition.variants}
    assert len(set(lines.values())) == len(lines)
    assert all(
        (lines[model].dash, lines[model].symbol) == (style.dash, style.symbol) for model, style in shipped.items()
    )
    assert Counter(line.color for line in lines.values()) == {**dict.fromkeys(PALETTE, 1), GREY: len(lines) - 12}


def test_model_has_one_colour_in_all_conditions_of_a_report(tmp_path):
    """The LSTM and its namesake in colour met in one condition only, and there the second one turned to another."""
    shipped = shipped_styles()
    same = [model for model, style in shipped.items() if style.color == shipped["lstm"].color][:3]
    assert len(same) == 3
    condition = report(tmp_path, [*same, "gru"])
    by_model = {variant.run.model: variant for variant in condition.variants}
    pairs = [replace(condition, variants=[by_model[model] for model in pair]) for pair in combinations(by_model, 2)]
    styles = Styles([condition, *pairs])
    seen = {
        (model, styles.of(each, by_model[model]).color)
        for each in pairs
        for model in by_model
        if by_model[model] in each.variants
    }
    assert len(seen) == len({color for _, color in seen}) == 4
    assert all(styles.of_model(model).color == color for model, color in seen)


def test_external_models_have_their_own_colours_and_dashes(tmp_path):
    condition = report(tmp_path, ["lstm", "scornn", *(f"mine_{number}" for number in range(10))])
    styles = Styles([condition])
    lines = [styles.of(condition, variant) for variant in condition.variants]
    assert len({(line.color, line.dash) for line in lines}) == len(lines)
    assert len({(line.dash, line.symbol) for line in lines}) == len(lines)
    assert {line.color for line in lines} == {*PALETTE}


def test_lines_of_the_tutorial_differ_on_the_page_and_in_print(tmp_path):
    condition = report(tmp_path, ["my_cell", "scornn", "lstm"])
    figure = learning_curves(condition, Styles([condition]))
    traces = [trace for trace in figure.data if trace.get("name") and "lines" in trace["mode"]]
    on_the_page = {trace["name"]: (trace["line"]["color"], trace["line"]["dash"]) for trace in traces}
    with same_everywhere():
        (legend,) = compose([("", figure)], 6.75, 1, 2.0).legends
    names = [text.get_text() for text in legend.get_texts()]
    lines = legend.get_lines()
    in_print = {name: (line.get_color(), line._dash_pattern) for name, line in zip(names, lines, strict=True)}
    for looks in (on_the_page, in_print):
        models = {name: look for name, look in looks.items() if name.split()[0] in ("my_cell", "scornn", "lstm")}
        assert len(models) == len({str(look) for look in models.values()}) == 3
        assert {name: color for name, (color, _) in models.items()} == {name: on_the_page[name][0] for name in models}
