// Legends: a button for every model or line, for keys and thumbs, at the ends of the lines if they fit there.

import { colour, theme } from "./colours.js";
import { button, element, withAttributes } from "./elements.js";
import { entryOf, LEAST_WIDTH } from "./traces.js";

const MOST_MOVED = 110; // pixels between the end of a line and its label
const LONG = 12; // the most entries of a legend before the reader asks for the rest, which is grey

/** @type {Record<string, string>} */
const SYMBOLS = { // others are drawn as circles
  square: "9,2 17,2 17,10 9,10",
  diamond: "13,1 18,6 13,11 8,6",
  "triangle-up": "13,1 18,10 8,10",
  cross: "11,1 15,1 15,4 18,4 18,8 15,8 15,11 11,11 11,8 8,8 8,4 11,4",
  x: "9,1 13,4 17,1 18,2 15,6 18,10 17,11 13,8 9,11 8,10 11,6 8,2",
  pentagon: "13,1 18,4.7 16.1,10.5 9.9,10.5 8,4.7",
  star: "13,0 14.5,4.2 19,4.4 15.4,7.2 16.7,11.5 13,9 9.3,11.5 10.6,7.2 7,4.4 11.5,4.2",
};

/** @type {Record<string, string>} */
const DASHES = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3" };

/**
 * Return the width of the labels at the ends of the lines; 0 if they do not fit.
 * @param {Plot} container
 * @param {Trace[]} data
 */
export function roomForEnds(container, data) {
  const { legend } = container, entries = entriesOf(legend);
  const lines = data.filter(({ showlegend }) => showlegend !== false);
  legend.classList.add("ends");
  const width = Math.ceil(Math.max(0, ...entries.map(({ offsetWidth }) => offsetWidth)));
  const height = entries.reduce((sum, { offsetHeight }) => sum + offsetHeight, 0);
  const fits = !theme.printing && !container.crowded && entries.length === legend.children.length && lines.every(({ mode }) => mode?.includes("lines")) && container.clientWidth >= LEAST_WIDTH && width <= 0.36 * container.clientWidth && height <= container.clientHeight - 60;
  legend.classList.toggle("ends", fits);
  legend.style.width = fits ? `${width}px` : "";
  return fits ? width : 0;
}

/**
 * Put the labels at the heights at which their lines end, or as near as the others let them.
 * @param {Plot} container
 * @param {(container: Plot) => void} redraw
 */
export function placeEnds(container, redraw) {
  const { legend, ends, _fullLayout: layout } = container;
  if (!legend || !layout?.yaxis) return;
  if (ends && container.clientWidth < LEAST_WIDTH) return redraw(container);
  if (!ends) return;
  const { xaxis, yaxis } = layout;
  /** @param {string} entry */
  const end = (entry) => {
    const line = container.data.find((trace) => trace.showlegend !== false && entryOf(trace) === entry);
    const { x, y } = line ?? { x: [], y: [] };
    for (let at = y.length - 1; at >= 0; at -= 1) {
      const [across, up] = [xaxis.d2p(x[at]), yaxis.d2p(y[at])];
      if (Number.isFinite(y[at]) && Number.isFinite(up) && across <= xaxis._length + 1) return Math.min(Math.max(up, 0), yaxis._length);
    }
    return yaxis._length;
  };
  const places = entriesOf(legend).map((node) => ({ node, half: node.offsetHeight / 2, wanted: end(node.entry) + yaxis._offset, at: 0 })).sort((first, second) => first.wanted - second.wanted);
  let free = 0;
  for (const place of places) {
    place.at = Math.max(place.wanted, free + place.half);
    free = place.at + place.half;
  }
  free = container.clientHeight;
  for (const place of places.reverse()) {
    place.at = Math.min(place.at, free - place.half);
    free = place.at - place.half;
  }
  if (places.some(({ at, wanted }) => Math.abs(at - wanted) > MOST_MOVED)) {
    container.crowded = true;
    return redraw(container);
  }
  for (const { node, half, at } of places) node.style.top = `${at - half}px`;
}

/**
 * @param {Plot} container
 * @param {Trace[]} data
 * @param {(container: Plot) => void} redraw
 */
export function showLegend(container, data, redraw) {
  /** @type {Map<string, Trace>} */
  const shown = new Map();
  const listed = data.filter(({ showlegend }) => showlegend !== false);
  /** @param {Trace} trace */
  const isThick = ({ line }) => (line?.width ?? 0) > 2; // the chosen model's are drawn last, but named first
  for (const trace of [...listed.filter(isThick), ...listed.filter((trace) => !isThick(trace))]) shown.set(entryOf(trace), trace);
  let legend = container.legend;
  if (!legend) {
    legend = container.legend = withAttributes(element("div", null), { class: "legend", role: "group", "aria-label": "Shown in this figure" });
    container.before(legend);
  }
  if (entriesOf(legend).map((entry) => entry.entry).join("\n") !== [...shown.keys()].join("\n")) {
    const isLong = shown.size > LONG + 1;
    const names = container.closest("#measured") ? distinguishing(shown) : null;
    legend.classList.toggle("long", isLong);
    legend.replaceChildren(...[...shown.keys()].map((entry) => legendButton(container, entry, names?.get(entry) ?? entry, redraw)), ...(isLong ? [moreButton(legend, shown.size - LONG)] : []));
    container.crowded = false;
  }
  for (const entry of entriesOf(legend)) {
    entry.setAttribute("aria-pressed", String(!container.off.has(entry.entry)));
    entry.querySelector("svg")?.remove();
    entry.prepend(sample(shown.get(entry.entry)));
  }
}

/**
 * Return the names of a legend's entries without the settings that all shown variants of their model have.
 * @param {Map<string, Trace>} shown the entries with a trace each
 */
function distinguishing(shown) {
  const variants = [...new Set([...shown.values()].map(({ meta }) => meta?.variant ?? ""))].map((label) => label.split(", "));
  return new Map([...shown].map(([entry, { meta }]) => {
    const [model, ...settings] = meta?.variant?.split(", ") ?? [];
    const own = variants.filter(([name]) => name === model);
    const kept = settings.filter((setting) => own.some((other) => !other.includes(setting)));
    return [entry, settings.length ? entry.replace(meta.variant, [model, ...kept].join(", ")) : entry];
  }));
}

/**
 * @param {HTMLElement} legend
 * @returns {LegendEntry[]}
 */
function entriesOf(legend) {
  return /** @type {LegendEntry[]} */ ([...legend.children]).filter(({ entry }) => entry !== undefined);
}

/**
 * Return a button that shows the entries after the first ones, or hides them again.
 * @param {HTMLElement} legend
 * @param {number} count
 */
function moreButton(legend, count) {
  const words = () => (legend.matches(".long") ? `${count} more` : `only the first ${LONG}`);
  const node = button(words(), () => {
    node.setAttribute("aria-expanded", String(!legend.classList.toggle("long")));
    node.textContent = words();
  });
  return withAttributes(node, { "aria-expanded": "false" });
}

/**
 * @param {Plot} container
 * @param {string} entry
 * @param {string} name
 * @param {(container: Plot) => void} redraw
 */
function legendButton(container, entry, name, redraw) {
  const node = /** @type {LegendEntry} */ (button("", () => {
    if (!container.off.delete(entry)) container.off.add(entry);
    redraw(container);
  }));
  node.append(element("bdi", name));
  if (name !== entry) node.title = entry;
  node.entry = entry;
  return node;
}

/**
 * Return a sample of the line, with a dot if it has markers.
 * @param {Trace} trace
 */
function sample({ line, marker, mode }) {
  /** @type {(kind: string, attributes: Record<string, string | number>) => Element} */
  const make = (kind, attributes) => withAttributes(document.createElementNS("http://www.w3.org/2000/svg", kind), attributes);
  const svg = make("svg", { width: 26, height: 12, "aria-hidden": "true" });
  const own = line?.color ?? (typeof marker?.color === "string" ? marker.color : colour("--faint"));
  if (mode?.includes("lines")) {
    const dashes = DASHES[line?.dash] ?? line?.dash?.replaceAll?.("px", "").replaceAll(",", " ");
    svg.append(make("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: own, "stroke-width": 2.5, "stroke-dasharray": line?.dash && line.dash !== "solid" ? dashes : "none" }));
  }
  if (!mode?.includes("markers")) return svg;
  const symbol = String(marker?.symbol ?? "circle");
  const points = SYMBOLS[symbol.replace("-open", "")];
  const paint = { fill: symbol.endsWith("-open") ? "none" : own, stroke: own };
  svg.append(points ? make("polygon", { points, ...paint }) : make("circle", { cx: 13, cy: 6, r: 4, ...paint }));
  if (symbol === "circle-x-open") svg.append(make("path", { d: "M10 3l6 6M10 9l6-6", ...paint }));
  return svg;
}
