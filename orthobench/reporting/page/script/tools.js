// The bar below a figure: the unit of x, a logarithmic y axis, smoothing, bands, its data, its picture and its command.

const UNITS = ["epoch", "iteration", "seconds"];
const UNSMOOTHED = "nothing";
const ROWS = 500; // the most rows in the data table; the CSV file has all

const WIDTHS = { "6.75 in": 6.75, "3.25 in": 3.25 }; // of two columns of a paper, and of one

function addTools(container) {
  const figure = container.closest("figure");
  if (!figure || container.tools) return;
  container.tools = { unit: null, log: null, smooth: 0, bands: false, inches: 6.75 };
  const bar = withAttributes(element("div", null), { class: "tools", role: "group", "aria-label": "Tools of this figure" });
  fillTools(container, bar);
  container.after(bar);
}

function axisTitle(layout, name) {
  const title = layout[name]?.title;
  return plain(typeof title === "string" ? title : title?.text ?? "");
}

// Return whether a figure can have a logarithmic y axis: it would lose negative values and names of rows.
function canBeLogarithmic({ data, layout }) {
  return !layout.yaxis?.ticktext && data.every(({ y }) => Array.from(numbers(y)).every((value) => !(value < 0)));
}

// Return the unit of a figure's x axis, if it shows the progress of training.
function unitOf(layout) {
  const title = axisTitle(layout, "xaxis").toLowerCase().replace(/s$/, "");
  return UNITS.find((unit) => title === unit || title === unit.replace(/s$/, "")) ?? null;
}

// Return whether a figure shows y over x. In a plane whose axes have the same scale, such as that of a trajectory, neither
// coordinate depends on the other.
function isCourse({ data, layout }) {
  return data.length > 0 && !layout.yaxis?.scaleanchor && data.every(({ type }) => !type || type === "scatter");
}

function fillTools(container, bar) {
  const { base, tools } = container;
  const name = fileName(container);
  const change = (act) => (event) => { act(event.target); draw(container); };
  const ticked = (label, checked, act) => {
    const box = withAttributes(element("input", null), { type: "checkbox" });
    box.checked = checked;
    box.addEventListener("change", change(act));
    return element("label", null, box, label);
  };
  const unit = unitOf(base.layout);
  const units = unit ? UNITS.filter((other) => other === unit || canConvert(container, other)) : [];
  if (units.length > 1) bar.append(choice("x", units, unit, change(({ value }) => { tools.unit = value; })));
  if (isCourse(base)) {
    if (canBeLogarithmic(base)) bar.append(ticked("log y", base.layout.yaxis?.type === "log", ({ checked }) => { tools.log = checked; }));
    const lines = base.data.some(({ mode }) => mode?.includes("lines"));
    const widths = lines && !container.longest ? windowsOf(base) : []; // the mean of kept extremes is not that of all points
    if (widths.length) {
      const word = unit === "seconds" ? unit : unit && unit + "s";
      const choices = [[UNSMOOTHED, 0], ...widths.map((width) => [[shownNumber(width), word].filter(Boolean).join(" "), width])];
      bar.append(choice("smooth", choices.map(([text]) => text), UNSMOOTHED, change(({ selectedIndex }) => { tools.smooth = choices[selectedIndex][1]; })));
    }
    if (new Set(base.data.filter(isEdge).map(({ legendgroup }) => legendgroup)).size > BANDS) bar.append(ticked("all bands", false, ({ checked }) => { tools.bands = checked; }));
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
      const width = choice("width of pictures", Object.keys(WIDTHS), "6.75 in", ({ target }) => { tools.inches = WIDTHS[target.value]; });
      const png = button("PNG", () => picture(container, "png").then((image) => download(`${name}-${tools.inches}in.png`, image)));
      more.append(element("p", null, width, png), ...dataTable(container));
    }
    const command = await commandOf(container);
    if (command) more.append(element("pre", command), copyButton(command));
  });
  bar.append(more);
}

function choice(label, values, chosen, act) {
  const select = element("select", null, ...values.map((value) => element("option", value)));
  select.value = chosen;
  select.addEventListener("change", act);
  return element("label", label + " ", select);
}

// Return the name for a figure's files, such as adding-T200-mse.
function fileName(container) {
  if (container.dataset.file) return container.dataset.file;
  const words = [container.dataset.condition, container.dataset.figure ?? container.getAttribute("aria-label")];
  return words.filter(Boolean).join("-").replace(/[^\w.-]+/g, "-").slice(0, 80);
}

// Return the factor that converts a trace's x to a unit; null if it is not known.
function factor(container, trace, unit) {
  const [perEpoch, seconds] = container.rates[trace.meta?.label] ?? Object.values(container.rates)[0] ?? [];
  const from = unitOf(container.base.layout);
  const perUnit = { epoch: 1, iteration: perEpoch, seconds };
  return perUnit[from] && perUnit[unit] ? perUnit[unit] / perUnit[from] : null;
}

function canConvert(container, unit) {
  return container.base.data.every((trace) => factor(container, trace, unit) !== null);
}

// Return the figure with the changes from its tools.
function tooled(container, figure) {
  const tools = container.tools;
  if (!tools || !(tools.unit || tools.log !== null || tools.smooth)) return figure;
  const layout = { ...figure.layout, xaxis: { ...figure.layout.xaxis }, yaxis: { ...figure.layout.yaxis } };
  const isLog = tools.log ?? figure.layout.yaxis?.type === "log";
  let data = tools.smooth ? figure.data.flatMap((trace) => smoothed(trace, tools.smooth, isLog)) : figure.data;
  if (tools.unit && tools.unit !== unitOf(container.base.layout)) {
    data = data.map((trace) => ({ ...trace, x: Array.from(numbers(trace.x), (x) => x * factor(container, trace, tools.unit)) }));
    layout.xaxis.title = { text: tools.unit === "seconds" ? "seconds of training" : tools.unit };
    delete layout.xaxis.range;
  }
  if (tools.log !== null) {
    if (tools.log) data = data.filter((trace) => !isArrow(trace)); // the whole range is in view
    layout.yaxis.type = tools.log ? "log" : "linear";
    if (tools.log !== (figure.layout.yaxis?.type === "log")) delete layout.yaxis.range;
    if (tools.log) delete layout.yaxis.rangemode;
  }
  return { data, layout };
}

// Return a line with gaps in place of values that a logarithmic axis has not; Plotly would draw it down to the frame.
function withGaps(trace, { yaxis }) {
  if (yaxis?.type !== "log" || !trace.mode?.includes("lines")) return trace;
  const values = numbers(trace.y);
  return values.some((value) => value <= 0) ? { ...trace, y: Array.from(values, (value) => (value > 0 ? value : null)) } : trace;
}

// Return smoothing widths of about 3, 9 and 27 tests, at least 1, 3 and 10 % of x, rounded to 1, 2 or 5 times a power of ten.
function windowsOf({ data }) {
  const curves = data.filter(isSmoothed).map(({ x }) => numbers(x));
  if (!curves.length) return [];
  const [span, tests] = curves.map((along) => [along.at(-1) - along[0], along.length]).reduce((most, other) => (other[0] > most[0] ? other : most));
  const round = (width) => Number([1, 2, 5, 10].map((factor) => factor * 10 ** Math.floor(Math.log10(width))).reduce((near, other) => (Math.abs(Math.log(other / width)) < Math.abs(Math.log(near / width)) ? other : near)).toPrecision(1));
  const widths = [0.01, 0.03, 0.1].map((share, number) => round(span * Math.max(share, 3 ** (number + 1) / tests)));
  return span > 0 ? [...new Set(widths)].filter((width) => width <= span / 2) : [];
}

function isSmoothed({ mode, line, fill, x, y }) {
  return mode?.includes("lines") && line?.width !== 0 && !fill && numbers(y).length > 2 && typeof numbers(x)[0] === "number";
}

// Return a faint copy of a line, and its moving mean over an interval of x; bands and marks do not change. A test counts by its
// share of x, not by the number of its neighbours. Near an end the interval is shorter on both sides. On a logarithmic axis
// the mean is taken of the logarithms.
function smoothed(trace, width, isLog) {
  if (!isSmoothed(trace)) return [trace];
  const [along, raw] = [numbers(trace.x), numbers(trace.y)];
  const last = along.length - 1;
  const isShown = (value) => typeof value === "number" && Number.isFinite(isLog ? Math.log(value) : value);
  const sums = [0], weights = [0];
  for (let at = 0; at <= last; at += 1) {
    const value = isLog ? Math.log(raw[at]) : raw[at];
    const weight = isShown(raw[at]) ? (along[Math.min(at + 1, last)] - along[Math.max(at - 1, 0)]) / 2 : 0;
    sums.push(sums[at] + (weight && weight * value));
    weights.push(weights[at] + weight);
  }
  let [from, to] = [0, 0];
  const mean = Array.from(along, (middle, at) => {
    const reach = Math.min(width / 2, middle - along[0], along[last] - middle) * (1 + 1e-9);
    while (along[from] < middle - reach) from += 1;
    while (to <= last && along[to] <= middle + reach) to += 1;
    const weight = weights[to] - weights[from];
    if (!(weight > 0) || !isShown(raw[at])) return null;
    const value = (sums[to] - sums[from]) / weight;
    return isLog ? Math.exp(value) : value;
  });
  return [{ ...trace, opacity: 0.25, showlegend: false, hoverinfo: "skip" }, { ...trace, y: mean, isMean: true }];
}

// Return whether a trace points at values beyond the frame: its arrow and label stand at the frame, not at a value.
function isArrow({ marker }) {
  return marker?.symbol === "arrow-up";
}

// Return whether a trace marks places on a line, where seeds end; it has no points of its own.
function isMark({ mode, text, showlegend, legendgroup }) {
  return mode === "markers" && Array.isArray(text) && showlegend === false && Boolean(legendgroup);
}

// Return whether a trace is the line below a logarithmic figure, at which edges of bands are drawn that are 0.
function isFloor({ name }) {
  return name?.startsWith("gaps: ") ?? false;
}

// Return the words of a line's marks by x.
function notesOf(data, { name, mode }) {
  const marks = mode?.includes("lines") && name ? data.filter((trace) => isMark(trace) && !isArrow(trace) && trace.legendgroup === name) : [];
  return new Map(marks.flatMap(({ x, text }) => Array.from(numbers(x), (along, at) => [along, text[at]])));
}

// Return a row for each point of the shown lines: its line, x, y, and for maps its value or for curves the words of its mark or point.
function* points(container) {
  const { data } = tooled(container, container.base);
  const columns = headings(container).length;
  const floor = data.filter(isFloor).map(({ y }) => numbers(y)[0] * 1.001).at(0) ?? 0; // curves have five digits
  for (const trace of data.filter((other) => !isMark(other) && !isFloor(other))) {
    const edge = trace.meta && trace.showlegend === false && trace.line?.width === 0 && (trace.fill ? "lowest seed" : "highest seed");
    const published = trace.meta?.published && trace.showlegend === false && "published"; // else its own entry says so
    const label = [entryOf(trace), edge, published, trace.isMean && "moving mean"].filter(Boolean).join(", ");
    if (trace.type === "heatmap") {
      const rows = Array.isArray(trace.z) ? trace.z.map(numbers) : [];
      for (const [row, values] of rows.entries()) for (const [column, exponent] of values.entries()) if (Number.isFinite(exponent)) yield [label || "value", numbers(trace.x)[column], numbers(trace.y)[row], 10 ** exponent];
    } else {
      const [along, up, notes] = [numbers(trace.x), numbers(trace.y), notesOf(data, trace)];
      for (let at = 0; at < up.length; at += 1) yield [label, along[at], edge && up[at] <= floor ? 0 : up[at], trace.hovertext ? plain(trace.hovertext[at]) : notes.get(along[at]) ?? ""].slice(0, columns);
    }
  }
}

function headings({ base: { data, layout } }) {
  const last = data.some(({ type }) => type === "heatmap") ? ["value"] : data.some((trace) => isMark(trace) && !isArrow(trace) && trace.text.some(Boolean)) || data.some(({ hovertext }) => Array.isArray(hovertext)) ? ["note"] : [];
  return ["line", axisTitle(layout, "xaxis") || "x", axisTitle(layout, "yaxis") || "y", ...last];
}

// Return the points as CSV, with names escaped so that no spreadsheet takes them for formulas.
function csvOf(container) {
  const quoted = (value) => {
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value ?? "") ? "'" + value : value ?? "";
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [headings(container), ...points(container)].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}

function dataTable(container) {
  const rows = [];
  let left = 0;
  for (const point of points(container)) {
    if (rows.length < ROWS) rows.push(point.map((value) => (typeof value === "number" ? shownNumber(value) : value)));
    else left += 1;
  }
  return [tableOf("Data of the figure", headings(container), rows), ...(left ? [element("p", `${left} more rows are in the CSV file.`)] : [])];
}

// Return a picture for a paper: of the width of one or two columns, with 8 pt text, in light colours, its legend below.
async function picture(container, format) {
  const { data, layout } = tooled(container, container.base), { inches } = container.tools;
  const text = 32 / 3, width = 96 * inches; // pixels
  const small = ({ line, marker, ...trace }) => ({
    ...trace, ...(line && { line: { ...line, width: 0.65 * (line.width ?? 2) } }),
    ...(marker && { marker: { ...marker, size: Array.isArray(marker.size) ? marker.size.map((size) => 0.6 * size) : 0.6 * (marker.size ?? 6) } }),
  });
  const shown = withFewBands(container, data).filter((trace) => !container.off?.has(entryOf(trace))).map((trace) => small(withGaps(trace, layout)));
  const names = layout.showlegend === false ? [] : shown.filter(({ showlegend, name }) => showlegend !== false && name).map(entryOf);
  let [lines, filled] = [names.length && 1, 0]; // of the legend, 20 pixels high, with about 6 pixels a letter
  for (const name of names) {
    const wide = 6 * name.length + 62;
    if (filled && filled + wide > width) [lines, filled] = [lines + 1, 0];
    filled += wide;
  }
  const rows = layout.yaxis?.ticktext?.length ?? 0;
  const plot = Math.max(inches > 4 ? 250 : 190, 15 * rows + 50), height = plot + 20 * lines + 6;
  const axis = (own, letters) => ({ ...own, automargin: true, title: { ...broken(own?.title, letters), font: { size: text }, standoff: 4 }, tickfont: { size: own?.type === "log" ? text / 1.25 : text }, gridcolor: "#e4e4e4", linecolor: "#000000", showline: true, zeroline: false });
  const light = {
    ...layout, paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", showlegend: names.length > 0,
    font: { size: text, family: "Arial, Liberation Sans, sans-serif", color: "#000000" }, margin: { l: 40, r: 14, t: 8, b: 34 + 20 * lines },
    xaxis: axis(layout.xaxis, width / 6), yaxis: axis(layout.yaxis, (plot - 50) / 6),
    legend: { orientation: "h", xref: "container", x: 0, yref: "container", y: 5 / height, yanchor: "bottom", maxheight: 20 * lines + 20, tracegroupgap: 0, font: { size: text } },
  };
  await plotly();
  return Plotly.toImage({ data: shown, layout: light }, { format, width, height, scale: format === "png" ? 600 / 96 : 1 });
}

// Print one figure alone on a page of its own size: what the browser saves as PDF then has lines, not pixels.
async function printAlone(container, name) {
  const image = element("img", null), { title } = document;
  image.src = await picture(container, "svg");
  await image.decode();
  const size = `${image.naturalWidth}px ${image.naturalHeight}px`;
  const sheet = withAttributes(element("div", null, element("style", `@page { size: ${size}; margin: 0; }`), image), { class: "alone" });
  document.body.append(sheet);
  document.documentElement.dataset.alone = "";
  document.title = name;
  window.print();
  delete document.documentElement.dataset.alone;
  document.title = title;
  sheet.remove();
}

// Return the command that measures what the figure shows: the paper's, the study's, or one per variant.
async function commandOf(container) {
  if (container.dataset.command) return container.dataset.command;
  const { conditions, variants } = await unpack("index");
  const number = conditions.findIndex(({ key }) => key === container.dataset.condition);
  const own = number < 0 ? [] : variants.filter(({ condition }) => condition === number);
  return own.map(({ model, settings }) => runCommand(conditions[number].task, model, 0, settings)).join("\n");
}
