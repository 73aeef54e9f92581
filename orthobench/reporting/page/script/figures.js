// Draws a figure in the page's colours when it is almost in view, and purges it when it is far away.

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const options = { responsive: true, displaylogo: false, displayModeBar: false };
const LIGHT = { "--ground": "#ffffff", "--ink": "#1a1f26", "--line": "#dce1e7", "--card": "#f5f7f9" };
let palette = [];
let printing = false;

function colour(name) {
  return (printing && LIGHT[name]) || getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Plotly is inserted as a script whose hash is in the page's content security policy.
let library;
function plotly() {
  library ??= unpack("plotly", "text").then((source) => {
    document.head.append(element("script", source));
    return window.Plotly;
  });
  return library;
}

// Return an axis title, in two lines if it has more letters than fit.
function broken(title, letters) {
  const text = typeof title === "string" ? title : title?.text ?? "";
  if (text.length <= letters || text.includes("<") || !text.includes(" ")) return { ...title, text };
  const spaces = Array.from(text.matchAll(/ /g), ({ index }) => index);
  const middle = spaces.reduce((near, at) => (Math.abs(at - text.length / 2) < Math.abs(near - text.length / 2) ? at : near));
  return { ...title, text: `${text.slice(0, middle)}<br>${text.slice(middle + 1)}` };
}

function inPageColours(layout, width, height) {
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false, showline: true };
  return {
    ...layout,
    paper_bgcolor: colour("--ground"),
    plot_bgcolor: colour("--ground"),
    font: { ...layout.font, color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
    showlegend: false, // the page has its own legend of buttons
    margin: { ...layout.margin, t: 10 },
    hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") }, namelength: -1 },
    xaxis: { ...layout.xaxis, ...axis, title: broken(layout.xaxis?.title, (width - 80) / 7) },
    yaxis: { ...layout.yaxis, ...axis, ...(hasNamedRows(layout, width) && { ticklabelposition: "inside top" }), title: broken(layout.yaxis?.title, (height - 60) / 9) },
  };
}

const LEAST_WIDTH = 480; // pixels of a figure with names next to its axis, or at the ends of its lines
const NAMED_ROW = 36; // pixels of a row with its name above its symbols

// Return whether the names of a figure's rows would leave too little width for its symbols. They are then above these.
function hasNamedRows({ yaxis }, width) {
  return Boolean(yaxis?.ticktext) && width < LEAST_WIDTH;
}

// Return a model's colour for the current background, because the palette's colours are too dim on a dark one.
function onGround(hex) {
  const number = palette.findIndex((entry) => entry.toLowerCase() === hex.toLowerCase());
  return number < 0 || printing ? hex : colour(`--model-${number}`) || hex;
}

function themed(trace) {
  const result = { ...trace };
  for (const part of ["line", "marker"]) {
    if (trace[part] && typeof trace[part].color === "string") result[part] = { ...trace[part], color: onGround(trace[part].color) };
  }
  const band = /^rgba\((\d+), ?(\d+), ?(\d+),/.exec(trace.fillcolor ?? "");
  if (band) {
    const hex = "#" + band.slice(1).map((part) => Number(part).toString(16).padStart(2, "0")).join("");
    const own = onGround(hex);
    if (own !== hex) result.fillcolor = own + "2e";
  }
  return result;
}

// Load a figure's data, and draw it.
async function draw(container) {
  await load(container);
  await plotly();
  if (container.isConnected) drawNow(container);
}

// Load a figure's data; who asks meanwhile waits for the same data.
async function load(container) {
  if (container.base) return;
  if (container.figure) return prepare(container, container.figure);
  const { condition, figure } = container.dataset;
  container.loading ??= unpackFigures("figures-" + condition).then(({ figures, rates, whole }) => {
    container.rates = rates;
    prepare(container, { ...figures[figure], data: figures[figure].data.map(whole) });
  }).finally(() => { container.loading = null; });
  await container.loading;
}

const IDLE = 50; // milliseconds between two figures that are loaded ahead

// Load the figures of the shown view one by one, because printing draws them all and cannot wait for their data.
async function loadAhead(view) {
  for (const container of view.querySelectorAll(".plot")) {
    await new Promise((resume) => setTimeout(resume, IDLE));
    if (view.hidden) return;
    if (container.isConnected) await load(container).catch(console.error);
  }
  if (view.querySelector(".plot")) await plotly();
}

// Give a figure its data, keys and tools.
function prepare(container, figure) {
  container.base = figure;
  container.rates ??= {};
  workByKeys(container);
  addTools(container);
}

// Draw a figure whose data is loaded, applying its tools and the filters next to it.
function drawNow(container) {
  const figure = tooled(container, withoutEmptyRows({ ...container.base, data: container.base.data.filter((trace) => passes(container, trace)) }));
  container.off ??= new Set();
  const data = withFewBands(container, figure.data).map((trace) => withGaps(themed(trace), figure.layout));
  for (const trace of data) if (container.off.has(entryOf(trace))) trace.visible = false;
  const rows = hasNamedRows(figure.layout, container.clientWidth) ? figure.layout.yaxis.ticktext.length : 0;
  container.style.height = rows ? `${NAMED_ROW * rows + 80}px` : "";
  const layout = inPageColours(figure.layout, container.clientWidth, container.clientHeight);
  if (rows) layout.yaxis.range = [0.7 - rows, 0.9]; // room for the first row's name
  if (figure.layout.showlegend !== false) {
    showLegend(container, data);
    container.ends = roomForEnds(container, data);
    if (container.ends) layout.margin.r = container.ends + 10;
  }
  Plotly.react(container, data, layout, options);
  if (!container.drawn) container.on("plotly_afterplot", () => { if (container.ends !== undefined) placeEnds(container); });
  container.drawn = true;
  placeEnds(container);
}

// Return the figure of seeds without the rows of the models that the filters hide.
function withoutEmptyRows(figure) {
  const { tickvals, ticktext } = figure.layout.yaxis ?? {};
  const used = new Set(figure.data.filter(({ meta }) => meta?.model).flatMap(({ y }) => Array.from(numbers(y))));
  const kept = (tickvals ?? []).filter((row) => used.has(row));
  if (!kept.length || kept.length === tickvals.length) return figure;
  const moved = new Map(kept.map((row, number) => [row, -number]));
  const data = figure.data.map((trace) => ({ ...trace, y: trace.meta?.model ? Array.from(numbers(trace.y), (row) => moved.get(row)) : [0.5, 0.5 - kept.length] }));
  const yaxis = { ...figure.layout.yaxis, tickvals: kept.map((row) => moved.get(row)), ticktext: ticktext.filter((_, at) => used.has(tickvals[at])), range: [0.5 - kept.length, 0.5] };
  return { ...figure, data, layout: { ...figure.layout, yaxis } };
}

const BANDS = 4; // the most bands that a figure shows unless asked for all

function isEdge({ mode, line, legendgroup }) {
  return mode === "lines" && line?.width === 0 && legendgroup !== undefined;
}

// Return the traces without the bands after the first four of the shown curves, because more of them hide each other.
function withFewBands(container, data) {
  if (container.tools?.bands) return data;
  const banded = [...new Set(data.filter((trace) => isEdge(trace) && !container.off?.has(entryOf(trace))).map(({ legendgroup }) => legendgroup))].slice(0, BANDS);
  return data.filter((trace) => !isEdge(trace) || banded.includes(trace.legendgroup));
}

function purge(container) {
  if (!container.drawn) return;
  Plotly.purge(container);
  container.replaceChildren();
  container.drawn = false;
}

// Keys do what the mouse does by dragging: zoom into the middle of a focused figure, move it, or reset it

const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2 };
const MOVES = { ArrowLeft: ["xaxis", -0.25], ArrowRight: ["xaxis", 0.25], ArrowDown: ["yaxis", -0.25], ArrowUp: ["yaxis", 0.25] };

function workByKeys(container) {
  container.tabIndex = 0;
  container.setAttribute("aria-keyshortcuts", ["+", "-", ...Object.keys(MOVES), "0"].join(" "));
  container.onkeydown = (event) => {
    const zoom = ZOOMS[event.key];
    const [moved, share] = MOVES[event.key] ?? [];
    if (event.ctrlKey || event.altKey || event.metaKey || !container.drawn || !(zoom || moved || event.key === "0")) return;
    event.preventDefault();
    if (event.key === "0") return drawNow(container);
    const ranges = {};
    for (const axis of moved ? [moved] : ["xaxis", "yaxis"]) {
      const [from, to] = container.layout[axis].range;
      const [middle, reach] = [(from + to) / 2 + (share ?? 0) * (to - from), (zoom ?? 1) * (to - from) / 2];
      ranges[axis + ".range"] = [middle - reach, middle + reach];
    }
    Plotly.relayout(container, ranges);
  };
}

// Legends: a button for every model or line, for keys and thumbs, at the ends of the lines if they fit there

const MOST_MOVED = 110; // pixels between the end of a line and its label

// Return the width of the labels at the ends of the lines; 0 if they do not fit.
function roomForEnds(container, data) {
  const { legend } = container, entries = entriesOf(legend);
  const lines = data.filter(({ showlegend }) => showlegend !== false);
  legend.classList.add("ends");
  const width = Math.ceil(Math.max(0, ...entries.map(({ offsetWidth }) => offsetWidth)));
  const height = entries.reduce((sum, { offsetHeight }) => sum + offsetHeight, 0);
  const fits = !printing && !container.crowded && entries.length === legend.children.length && lines.every(({ mode }) => mode?.includes("lines")) && container.clientWidth >= LEAST_WIDTH && width <= 0.36 * container.clientWidth && height <= container.clientHeight - 60;
  legend.classList.toggle("ends", fits);
  legend.style.width = fits ? `${width}px` : "";
  return fits ? width : 0;
}

// Put the labels at the heights at which their lines end, or as near as the others let them.
function placeEnds(container) {
  const { legend, ends, _fullLayout: layout } = container;
  if (!legend || !layout?.yaxis) return;
  if (ends && container.clientWidth < LEAST_WIDTH) return drawNow(container);
  if (!ends) return;
  const { xaxis, yaxis } = layout;
  const end = (entry) => {
    const line = container.data.find((trace) => trace.showlegend !== false && entryOf(trace) === entry);
    const [x, y] = [numbers(line?.x), numbers(line?.y)];
    for (let at = y.length - 1; at >= 0; at -= 1) {
      const [across, up] = [xaxis.d2p(x[at]), yaxis.d2p(y[at])];
      if (Number.isFinite(y[at]) && Number.isFinite(up) && across <= xaxis._length + 1) return Math.min(Math.max(up, 0), yaxis._length);
    }
    return yaxis._length;
  };
  const places = entriesOf(legend).map((node) => ({ node, half: node.offsetHeight / 2, wanted: end(node.entry) + yaxis._offset })).sort((first, second) => first.wanted - second.wanted);
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
    return drawNow(container);
  }
  for (const { node, half, at } of places) node.style.top = `${at - half}px`;
}

function entryOf(trace) {
  return trace.meta?.label ?? plain(trace.name ?? "");
}

// Return the text of a name, which Plotly reads as markup.
function plain(markup) {
  return new DOMParser().parseFromString(markup, "text/html").body.textContent;
}

function showLegend(container, data) {
  const shown = new Map();
  for (const trace of data) if (trace.showlegend !== false) shown.set(entryOf(trace), trace);
  let legend = container.legend;
  if (!legend) {
    legend = container.legend = withAttributes(element("div", null), { class: "legend", role: "group", "aria-label": "Shown in this figure" });
    container.before(legend);
  }
  if (entriesOf(legend).map((entry) => entry.entry).join("\n") !== [...shown.keys()].join("\n")) {
    const isLong = shown.size > LONG + 1;
    legend.classList.toggle("long", isLong);
    legend.replaceChildren(...[...shown.keys()].map((entry) => legendButton(container, entry)), ...(isLong ? [moreButton(legend, shown.size - LONG)] : []));
    container.crowded = false;
  }
  for (const entry of entriesOf(legend)) {
    entry.setAttribute("aria-pressed", String(!container.off.has(entry.entry)));
    entry.querySelector("svg")?.remove();
    entry.prepend(sample(shown.get(entry.entry)));
  }
}

const LONG = 12; // the most entries of a legend before the reader asks for the rest, which is grey

function entriesOf(legend) {
  return [...legend.children].filter(({ entry }) => entry !== undefined);
}

// Return a button that shows the entries after the first ones, or hides them again.
function moreButton(legend, count) {
  const words = () => (legend.matches(".long") ? `${count} more` : `only the first ${LONG}`);
  const node = button(words(), () => {
    node.setAttribute("aria-expanded", String(!legend.classList.toggle("long")));
    node.textContent = words();
  });
  return withAttributes(node, { "aria-expanded": "false" });
}

function legendButton(container, entry) {
  const node = button("", () => {
    if (!container.off.delete(entry)) container.off.add(entry);
    draw(container);
  });
  node.append(element("bdi", entry));
  node.entry = entry;
  return node;
}

const SYMBOLS = { // others are drawn as circles
  square: "9,2 17,2 17,10 9,10",
  diamond: "13,1 18,6 13,11 8,6",
  "triangle-up": "13,1 18,10 8,10",
  cross: "11,1 15,1 15,4 18,4 18,8 15,8 15,11 11,11 11,8 8,8 8,4 11,4",
  x: "9,1 13,4 17,1 18,2 15,6 18,10 17,11 13,8 9,11 8,10 11,6 8,2",
  pentagon: "13,1 18,4.7 16.1,10.5 9.9,10.5 8,4.7",
  star: "13,0 14.5,4.2 19,4.4 15.4,7.2 16.7,11.5 13,9 9.3,11.5 10.6,7.2 7,4.4 11.5,4.2",
};
const DASHES = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3" };

// Return a sample of the line, with a dot if it has markers.
function sample({ line, marker, mode }) {
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

// Figures almost in view are drawn, and figures two screens away are purged, so that they need no layout

const REST = 100; // milliseconds without scrolling before a figure is drawn: drawing one takes longer than a frame
const waiting = new Set();
let lastScroll = -REST;
let isDrawing = false;
const sight = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && !target.drawn) waiting.add(target);
      else waiting.delete(target);
    }
    drawWaiting();
  },
  { rootMargin: "600px" },
);

// Draw the figures that are almost in view, one after another, while nothing scrolls.
async function drawWaiting() {
  if (isDrawing) return;
  isDrawing = true;
  while (waiting.size) {
    const rest = lastScroll + REST - performance.now();
    if (rest > 0) {
      await new Promise((resume) => setTimeout(resume, rest));
      continue;
    }
    const [container] = waiting;
    waiting.delete(container);
    try {
      await draw(container);
    } catch (error) {
      console.error(error);
    }
    await new Promise((resume) => setTimeout(resume));
  }
  isDrawing = false;
}
window.addEventListener("scroll", () => { lastScroll = performance.now(); }, { passive: true });
const distance = new IntersectionObserver(
  (entries) => { for (const entry of entries) if (!entry.isIntersecting && !printing) purge(entry.target); },
  { rootMargin: "3000px" },
);

function redraw() {
  for (const container of document.querySelectorAll(".plot")) {
    if (!container.drawn) continue;
    if (container.offsetParent) drawNow(container);
    else purge(container);
  }
}

function watch(root) {
  for (const container of root.querySelectorAll(".plot")) {
    for (const observer of [sight, distance]) {
      observer.unobserve(container);
      observer.observe(container);
    }
  }
  loadAhead(root);
}

// Return a figure for a page that the script builds. `lines` have a name, x, y, a color, optionally their number of points
// where some are left out (`of`), and optionally other properties of a trace.
function plot(title, lines, { x, y, logarithmic = false, baseline = null, small = true, rates = {}, command = "" }) {
  const container = withAttributes(element("div", null), { class: small ? "plot small" : "plot", role: "img", "aria-label": title });
  container.dataset.command = command;
  container.longest = Math.max(0, ...lines.map(({ of }) => of ?? 0));
  const data = lines.map(({ name, color, dash = "solid", width = 2, of, ...others }) => ({ mode: "lines", name: escaped(name), line: { color, width, dash }, ...others }));
  if (baseline !== null && data.length) {
    const ends = data.map(({ x: along }) => numbers(along)).filter((along) => along.length);
    const last = Math.max(...ends.map((along) => along[along.length - 1]));
    data.push({ x: [0, last], y: [baseline, baseline], name: `baseline ${shownNumber(baseline)}`, mode: "lines", line: { color: "#888888", width: 1.5, dash: "dash" } });
  }
  const layout = {
    xaxis: { title: { text: escaped(x) }, automargin: true },
    yaxis: { title: { text: escaped(y ?? "") }, automargin: true, type: logarithmic ? "log" : "linear", exponentformat: "power" },
    margin: { l: 60, r: 16, t: 24, b: 48 }, hovermode: lines.length > 12 ? "closest" : "x unified", showlegend: data.filter((trace) => trace.showlegend !== false).length > 1,
  };
  const [low, high] = extent(data);
  if (low === high && !logarithmic) layout.yaxis.range = low === 0 ? [-0.05, 1.05] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  container.figure = { data, layout };
  container.rates = rates;
  const drawn = container.longest ? `; drawn through the first and the most extreme of up to ${container.longest} points` : "";
  return element("figure", null, container, element("figcaption", title + drawn));
}

// Return the lowest and the highest finite value of lines.
function extent(lines) {
  const values = lines.flatMap(({ y }) => Array.from(numbers(y))).filter((value) => value !== null && Number.isFinite(value));
  return [values.reduce((least, value) => Math.min(least, value), Infinity), values.reduce((most, value) => Math.max(most, value), -Infinity)];
}

function escaped(text) {
  return element("i", String(text)).innerHTML; // Plotly interprets a few tags in names
}
