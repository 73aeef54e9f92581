// The bar below a figure: the unit of x, a logarithmic y axis, smoothing, bands, its data, its picture and its command.

import { canConvert, unitOf, UNITS } from "./changes.js";
import { unpackIndex } from "./data.js";
import { button, choice, copyButton, download, element, withAttributes } from "./elements.js";
import { hasFurther } from "./filters.js";
import { picture, printAlone, WIDTHS } from "./pictures.js";
import { csvOf, dataTable } from "./points.js";
import { windowsOf } from "./smoothing.js";
import { BANDS, isEdge } from "./traces.js";
import { runCommand, shownNumber } from "./words.js";

const UNSMOOTHED = "nothing";

/**
 * @param {Plot} container
 * @param {(container: Plot) => void} redraw
 */
export function addTools(container, redraw) {
  const figure = container.closest("figure");
  if (!figure || container.nextElementSibling?.matches(".tools")) return;
  container.tools ??= { unit: null, log: null, smooth: 0, bands: false, whole: false, all: false, inches: 6.75 };
  const bar = withAttributes(element("div", null), { class: "tools", role: "group", "aria-label": "Tools of this figure" });
  fillTools(container, bar, redraw);
  container.after(bar);
}

/**
 * Return whether a figure can have a logarithmic y axis: it would lose negative values and names of rows.
 * @param {Figure} figure
 */
function canBeLogarithmic({ data, layout }) {
  return !layout.yaxis?.ticktext && data.every(({ y }) => y.every((value) => !(value < 0)));
}

/**
 * Return whether a figure shows y over x. In a plane whose axes have the same scale, such as that of a trajectory, neither
 * coordinate depends on the other.
 * @param {Figure} figure
 */
function isCourse({ data, layout }) {
  return data.length > 0 && !layout.yaxis?.scaleanchor && data.every(({ type }) => !type || type === "scatter");
}

/**
 * @param {Plot} container
 * @param {HTMLElement} bar
 * @param {(container: Plot) => void} redraw
 */
function fillTools(container, bar, redraw) {
  const { base, tools } = container;
  const name = fileName(container);
  /** @type {<E>(act: (field: E) => void) => (field: E) => void} */
  const change = (act) => (field) => { act(field); redraw(container); };
  /** @type {(label: string, checked: boolean, act: (box: HTMLInputElement) => void) => HTMLElement} */
  const ticked = (label, checked, act) => {
    const box = withAttributes(element("input", null), { type: "checkbox" });
    box.checked = checked;
    box.addEventListener("change", () => change(act)(box));
    return element("label", null, box, label);
  };
  const unit = unitOf(base.layout);
  const units = unit ? UNITS.filter((other) => other === unit || canConvert(container, other)) : [];
  if (units.length > 1) bar.append(choice("x", units, tools.unit ?? unit, change(({ value }) => { tools.unit = value; })));
  if (hasFurther(container) || container.dataset.figure === "seeds") bar.append(ticked("all variants", tools.all, ({ checked }) => { tools.all = checked; }));
  if (isCourse(base)) {
    if (canBeLogarithmic(base)) bar.append(ticked("log y", tools.log ?? base.layout.yaxis?.type === "log", ({ checked }) => { tools.log = checked; }));
    if (base.layout.meta?.words) bar.append(withAttributes(ticked("full range", tools.whole, ({ checked }) => { tools.whole = checked; }), { title: base.layout.meta.words }));
    const lines = base.data.some(({ mode }) => mode?.includes("lines"));
    const widths = lines && !container.longest ? windowsOf(base) : []; // the mean of kept extremes is not that of all points
    if (widths.length) {
      const word = unit === "seconds" ? unit : unit && unit + "s";
      const words = [UNSMOOTHED, ...widths.map((width) => [shownNumber(width), word].filter(Boolean).join(" "))];
      bar.append(choice("smooth", words, words[widths.indexOf(tools.smooth) + 1], change(({ selectedIndex }) => { tools.smooth = [0, ...widths][selectedIndex]; })));
    }
    if (new Set(base.data.filter(isEdge).map(({ legendgroup }) => legendgroup)).size > BANDS) bar.append(ticked("all bands", tools.bands, ({ checked }) => { tools.bands = checked; }));
  }
  if (container.longest) bar.append("The page does not have all points, so it saves none; orthobench db export writes all.");
  else bar.append(
    button("CSV", () => download(name + ".csv", csvOf(container), "text/csv")),
    button("SVG", () => picture(container, "svg").then((image) => download(`${name}-${tools.inches}in.svg`, image))),
    button("PDF", () => printAlone(container, `${name}-${tools.inches}in`)),
  );
  const more = element("details", null, element("summary", "More"));
  more.addEventListener("toggle", async () => {
    if (!more.open || more.children.length > 1) return;
    if (!container.longest) {
      const width = choice("width of pictures", Object.keys(WIDTHS), Object.keys(WIDTHS).find((width) => WIDTHS[width] === tools.inches), ({ value }) => { tools.inches = WIDTHS[value]; });
      const png = button("PNG", () => picture(container, "png").then((image) => download(`${name}-${tools.inches}in.png`, image)));
      more.append(element("p", null, width, png), ...dataTable(container));
    }
    const command = await commandOf(container);
    if (command) more.append(element("pre", command), copyButton(command));
  });
  bar.append(more);
}

/**
 * Return the name for a figure's files, such as adding-T200-mse.
 * @param {Plot} container
 */
function fileName(container) {
  if (container.dataset.file) return container.dataset.file;
  const words = [container.dataset.condition, container.dataset.figure ?? container.getAttribute("aria-label")];
  return words.filter(Boolean).join("-").replace(/[^\w.-]+/g, "-").slice(0, 80);
}

/**
 * Return the command that measures what the figure shows: the paper's, the study's, or one per variant.
 * @param {Plot} container
 */
async function commandOf(container) {
  if (container.dataset.command) return container.dataset.command;
  const { conditions, variants } = await unpackIndex();
  const number = conditions.findIndex(({ key }) => key === container.dataset.condition);
  const own = number < 0 ? [] : variants.filter(({ condition }) => condition === number);
  return own.map(({ model, settings }) => runCommand(conditions[number].task, model, 0, settings)).join("\n");
}
