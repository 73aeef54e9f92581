"use strict";
// Shows one page of the report at a time, draws figures when they come into sight, filters, and fills in a run's page.
// Everything that comes from the database enters as text, never as markup.
(() => {
  const { figures, palette, runs, environments, axes } = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const views = [...document.querySelectorAll(".view")];
  const form = document.getElementById("filters");
  const options = { responsive: true, displaylogo: false, displayModeBar: false };

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function inPageColours(layout) {
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false, showline: true };
    return {
      ...layout,
      paper_bgcolor: colour("--ground"),
      plot_bgcolor: colour("--ground"),
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
      showlegend: false, // the page has its own legend of buttons
      margin: { ...layout.margin, t: 10 },
      hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") } },
      xaxis: { ...layout.xaxis, ...axis },
      yaxis: { ...layout.yaxis, ...axis },
    };
  }

  function chosen(name) {
    return form?.elements[name]?.value ?? "";
  }

  // Figures

  // Return a model's colour for this ground: the palette's own colours are too dim on a dark one.
  function onGround(hex) {
    const number = palette.indexOf(hex);
    return number < 0 ? hex : colour(`--model-${number}`);
  }

  function themed(trace) {
    const result = { ...trace };
    for (const part of ["line", "marker"]) {
      if (trace[part] && typeof trace[part].color === "string") result[part] = { ...trace[part], color: onGround(trace[part].color) };
    }
    if (trace.fillcolor) {
      const band = /^rgba\((\d+),(\d+),(\d+),/.exec(trace.fillcolor);
      const hex = "#" + band.slice(1).map((part) => Number(part).toString(16).padStart(2, "0")).join("").toUpperCase();
      result.fillcolor = onGround(hex) + "2e";
    }
    return result;
  }

  function figureOf(container) {
    if (container.figure) return container.figure;
    const figure = figures[container.dataset.condition][container.dataset.figure];
    const [model, tag] = ["model", "tag"].map(chosen);
    if (!(model || tag) || container.dataset.condition.startsWith("study-")) return figure;
    const fits = ({ meta }) => !meta || ((!model || meta.model === model) && (!tag || meta.tags.includes(tag)));
    return { ...figure, data: figure.data.filter(fits) };
  }

  function draw(container) {
    const figure = figureOf(container);
    if (!container.drawn) workByKeys(container);
    container.drawn = true;
    container.off ??= new Set();
    const data = figure.data.map(themed);
    for (const trace of data) if (container.off.has(entryOf(trace))) trace.visible = false;
    Plotly.react(container, data, inPageColours(figure.layout), options);
    if (figure.layout.showlegend !== false) showLegend(container, data);
  }

  // Keys do what dragging does with the mouse: zoom a focused figure about its middle, move it, show it whole again

  const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2 };
  const MOVES = { ArrowLeft: ["xaxis", -0.25], ArrowRight: ["xaxis", 0.25], ArrowDown: ["yaxis", -0.25], ArrowUp: ["yaxis", 0.25] };

  function workByKeys(container) {
    container.tabIndex = 0;
    container.setAttribute("aria-keyshortcuts", ["+", "-", ...Object.keys(MOVES), "0"].join(" "));
    container.onkeydown = (event) => {
      const zoom = ZOOMS[event.key];
      const [moved, share] = MOVES[event.key] ?? [];
      if (event.ctrlKey || event.altKey || event.metaKey || !(zoom || moved || event.key === "0")) return;
      event.preventDefault();
      if (event.key === "0") return draw(container);
      const ranges = {};
      for (const axis of moved ? [moved] : ["xaxis", "yaxis"]) {
        const [from, to] = container.layout[axis].range;
        const [middle, reach] = [(from + to) / 2 + (share ?? 0) * (to - from), (zoom ?? 1) * (to - from) / 2];
        ranges[axis + ".range"] = [middle - reach, middle + reach];
      }
      Plotly.relayout(container, ranges);
    };
  }

  // Legends: a button for every model or line, for keys and thumbs

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
      legend = container.legend = element("div", null);
      legend.className = "legend";
      legend.setAttribute("role", "group");
      legend.setAttribute("aria-label", "Shown in this figure");
      container.before(legend);
    }
    if ([...legend.children].map((button) => button.entry).join("\n") !== [...shown.keys()].join("\n")) {
      legend.replaceChildren(...[...shown.keys()].map((entry) => legendButton(container, entry)));
    }
    for (const button of legend.children) {
      button.setAttribute("aria-pressed", String(!container.off.has(button.entry)));
      button.querySelector("svg")?.remove();
      button.prepend(sample(shown.get(button.entry)));
    }
  }

  function legendButton(container, entry) {
    const button = element("button", null, element("span", entry));
    button.type = "button";
    button.entry = entry;
    button.addEventListener("click", () => {
      if (!container.off.delete(entry)) container.off.add(entry);
      draw(container);
    });
    return button;
  }

  const SYMBOLS = { // others are drawn as circles
    square: "9,2 17,2 17,10 9,10",
    diamond: "13,1 18,6 13,11 8,6",
    "triangle-up": "13,1 18,10 8,10",
    cross: "11,1 15,1 15,4 18,4 18,8 15,8 15,11 11,11 11,8 8,8 8,4 11,4",
    x: "9,1 13,4 17,1 18,2 15,6 18,10 17,11 13,8 9,11 8,10 11,6 8,2",
    star: "13,0 14.5,4.2 19,4.4 15.4,7.2 16.7,11.5 13,9 9.3,11.5 10.6,7.2 7,4.4 11.5,4.2",
  };
  const DASHES = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3" };

  // Return a sample of the line, with a dot if it has markers.
  function sample({ line, marker, mode }) {
    const make = (kind, attributes) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
      for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
      return node;
    };
    const svg = make("svg", { width: 26, height: 12, "aria-hidden": "true" });
    const own = line?.color ?? marker?.color ?? colour("--faint");
    if (mode?.includes("lines")) {
      svg.append(make("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: own, "stroke-width": 2.5, "stroke-dasharray": DASHES[line?.dash] ?? "none" }));
    }
    if (!mode?.includes("markers")) return svg;
    const symbol = marker?.symbol ?? "circle";
    const open = symbol.endsWith("-open");
    const points = SYMBOLS[symbol.replace("-open", "")];
    const paint = { fill: open ? "none" : own, stroke: own };
    svg.append(points ? make("polygon", { points, ...paint }) : make("circle", { cx: 13, cy: 6, r: 4, ...paint }));
    return svg;
  }

  const sight = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting && !entry.target.drawn) draw(entry.target);
    },
    { rootMargin: "600px" },
  );

  function redraw() {
    for (const container of document.querySelectorAll(".plot")) {
      if (!container.drawn) continue;
      if (container.offsetParent) draw(container);
      else container.drawn = false;
    }
  }

  function watch(root) {
    for (const container of root.querySelectorAll(".plot")) {
      sight.unobserve(container);
      sight.observe(container);
    }
  }

  // Pages

  // Return a page by its name. Ids of pages differ from names, so the browser does not scroll past the header.
  function at(name) {
    return name && (document.getElementById("view-" + name) || document.getElementById(name));
  }

  function show() {
    const name = decodeURIComponent(location.hash.slice(1));
    const key = name.startsWith("run-") ? name.slice(4) : null;
    if (key && Object.hasOwn(runs, key)) fillRun(key);
    const first = at("overview") || at("studies") || views[0];
    const target = (key ? document.getElementById("view-run") : at(name)) || first;
    const view = target.closest(".view") || first;
    for (const other of views) other.hidden = other !== view;
    for (const link of document.querySelectorAll("nav a")) {
      if ("#view-" + link.hash.slice(1) === "#" + view.id || (view.id === "view-run" && link.hash === "#runs")) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    watch(view);
    if (target !== view) target.scrollIntoView();
    else window.scrollTo(0, 0);
  }

  // Filters

  function filter() {
    const [task, model, seed, tag] = ["task", "model", "seed", "tag"].map(chosen);
    const misses = (dataset, name, value) => value && name in dataset && dataset[name] !== value;
    const untagged = ({ tags }) => tag && tags !== undefined && !JSON.parse(tags).includes(tag);
    for (const part of document.querySelectorAll("[data-task]")) {
      const { dataset } = part;
      part.hidden = misses(dataset, "task", task) || misses(dataset, "model", model) || misses(dataset, "seed", seed) || untagged(dataset);
    }
    for (const row of document.querySelectorAll("tr[data-model]:not([data-task])")) {
      row.hidden = (row.dataset.model !== "" && misses(row.dataset, "model", model)) || untagged(row.dataset);
    }
    for (const part of document.querySelectorAll(".filtered")) {
      const rows = [...part.querySelectorAll("tbody tr")];
      if (rows.length && rows.every((row) => row.hidden)) part.hidden = true;
    }
    const left = document.querySelectorAll("#view-runs tbody tr:not([hidden])").length;
    form.querySelector("output").textContent = task || model || seed || tag
      ? `${left} run${left === 1 ? "" : "s"} fit${seed || tag ? "; figures and means are over all seeds of a model" : ""}` : "";
    redraw();
    for (const view of views) if (!view.hidden) watch(view);
  }

  // A run's page

  function element(kind, text, ...children) {
    const node = document.createElement(kind);
    if (text !== null) node.textContent = text;
    node.append(...children);
    return node;
  }

  function table(title, record) {
    const rows = Object.entries(record).map(([name, value]) => {
      const head = element("th", name);
      head.scope = "row";
      const text = value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? "–");
      return element("tr", null, head, element("td", text));
    });
    const scroll = element("div", null, element("table", null, element("tbody", null, ...rows)));
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", title);
    return scroll;
  }

  function plot(title, series, xTitle, logarithmic, color) {
    const container = element("div", null);
    container.className = "plot small";
    container.setAttribute("role", "img");
    container.setAttribute("aria-label", title);
    const data = series.map(({ name, x, y }, number) => ({
      x: axes[x], y, name: escape(name), mode: "lines", line: { color, width: 2, dash: ["solid", "dash", "dot", "dashdot"][number % 4] },
    }));
    const layout = {
      xaxis: { title: { text: xTitle }, automargin: true },
      yaxis: { automargin: true, type: logarithmic ? "log" : "linear", exponentformat: "power" },
      margin: { l: 60, r: 16, t: 24, b: 48 }, hovermode: "x unified", showlegend: series.length > 1,
    };
    container.figure = { data, layout };
    return element("figure", null, container, element("figcaption", title));
  }

  function escape(text) {
    return element("i", text).innerHTML; // Plotly reads a few tags in names
  }

  function fillRun(key) {
    const run = runs[key];
    const { label, condition, spec, environment, color, curves, traces, ...facts } = run;
    const settings = { ...spec.task_settings, ...spec.model_settings, ...spec.training };
    const overrides = Object.entries(settings).map(([name, value]) => `-s ${name}=${value ?? "none"}`);
    const reproduce = ["orthobench run", spec.task, spec.model, "--seed", spec.seed, ...overrides].join(" ");
    const plots = element("div", null);
    plots.className = "pair";
    for (const curve of curves) plots.append(plot(curve.name, [curve], "iteration", curve.name.startsWith("probe "), color));
    const vectors = Map.groupBy ? Map.groupBy(traces, ({ name }) => name.split(",")[0]) : new Map(traces.map((t) => [t.name, [t]]));
    for (const [name, series] of vectors) plots.append(plot(name, series, "step", true, color));
    const copy = element("button", "copy");
    copy.type = "button";
    copy.addEventListener("click", () => navigator.clipboard?.writeText(reproduce).then(() => { copy.textContent = "copied"; }));
    const container = document.getElementById("view-run");
    container.replaceChildren(
      element("h2", `Run ${key}`), element("p", `${label} on ${condition}, seed ${run.seed}${run.tags ? ` · ${run.tags}` : ""}`),
      plots,
      element("h3", "To reproduce this run"), element("pre", reproduce), copy,
      element("h3", "Result"), table("Result", facts),
      element("h3", "Settings"), table("Settings", { ...settings, task_version: spec.task_version, model_version: spec.model_version }),
      element("h3", "Environment"), table("Environment", environments[environment]),
    );
  }

  if (form) {
    form.addEventListener("change", filter);
    form.addEventListener("reset", () => setTimeout(filter));
  }
  window.addEventListener("hashchange", show);
  dark.addEventListener("change", redraw);
  show();
})();
