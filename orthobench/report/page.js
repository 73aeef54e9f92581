"use strict";
// Shows one page of the report at a time, draws figures when they come into sight, filters, and fills in a run's page.
// Everything that comes from the database enters as text, never as markup.
(() => {
  const { figures, runs, environments, axes } = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const views = [...document.querySelectorAll(".view")];
  const form = document.getElementById("filters");
  const options = { responsive: true, displaylogo: false, displayModeBar: false };

  function inPageColours(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false, showline: true };
    return {
      ...layout,
      paper_bgcolor: colour("--ground"),
      plot_bgcolor: colour("--ground"),
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 13 },
      hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") } },
      xaxis: { ...layout.xaxis, ...axis },
      yaxis: { ...layout.yaxis, ...axis },
    };
  }

  function chosen(name) {
    return form ? form.elements[name].value : "";
  }

  // Figures

  function modelOf(trace) {
    return (trace.legendgroup || trace.name || "").split(/[ ,]/)[0];
  }

  function figureOf(place) {
    if (place.figure) return place.figure;
    const figure = figures[place.dataset.condition][place.dataset.figure];
    const model = chosen("model");
    if (!model || place.dataset.condition.startsWith("study-")) return figure;
    const data = figure.data.filter((trace) => modelOf(trace) === model || modelOf(trace) === "baseline");
    return { ...figure, data };
  }

  function draw(place) {
    const figure = figureOf(place);
    place.drawn = true;
    Plotly.react(place, figure.data, inPageColours(figure.layout), options);
  }

  const sight = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting && !entry.target.drawn) draw(entry.target);
    },
    { rootMargin: "600px" },
  );

  function redraw() {
    for (const place of document.querySelectorAll(".plot")) {
      if (!place.drawn) continue;
      if (place.offsetParent) draw(place);
      else place.drawn = false;
    }
  }

  function watch(root) {
    for (const place of root.querySelectorAll(".plot")) {
      sight.unobserve(place);
      sight.observe(place);
    }
  }

  // Pages

  // A page by its name; pages' own ids differ, so that the browser does not scroll to them past the head.
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
    const [task, model, seed] = ["task", "model", "seed"].map(chosen);
    for (const part of document.querySelectorAll("[data-task]")) {
      const { dataset } = part;
      part.hidden = (task && dataset.task !== task) || (model && "model" in dataset && dataset.model !== model) ||
        (seed && "seed" in dataset && dataset.seed !== seed);
    }
    for (const row of document.querySelectorAll("tr[data-model]:not([data-task])")) {
      row.hidden = model && row.dataset.model !== "" && row.dataset.model !== model;
    }
    const left = document.querySelectorAll("#view-runs tbody tr:not([hidden])").length;
    form.querySelector("output").textContent = task || model || seed
      ? `${left} run${left === 1 ? "" : "s"} fit${seed ? "; figures and means are over all seeds" : ""}` : "";
    redraw();
    for (const view of views) if (!view.hidden) watch(view);
  }

  // A run's page

  function element(kind, text, ...children) {
    const made = document.createElement(kind);
    if (text !== null) made.textContent = text;
    made.append(...children);
    return made;
  }

  function table(record) {
    const rows = Object.entries(record).map(([name, value]) => {
      const head = element("th", name);
      head.scope = "row";
      const text = value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? "–");
      return element("tr", null, head, element("td", text));
    });
    const scroll = element("div", null, element("table", null, element("tbody", null, ...rows)));
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    return scroll;
  }

  function plot(title, series, xTitle, logarithmic, colour) {
    const place = element("div", null);
    place.className = "plot small";
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", title);
    const data = series.map(({ name, x, y }, number) => ({
      x: axes[x], y, name: escape(name), mode: "lines", line: { color: colour, width: 2, dash: ["solid", "dash", "dot", "dashdot"][number % 4] },
    }));
    const layout = {
      xaxis: { title: { text: xTitle }, automargin: true },
      yaxis: { automargin: true, type: logarithmic ? "log" : "linear", exponentformat: "power" },
      margin: { l: 60, r: 16, t: 24, b: 48 }, hovermode: "x unified", showlegend: series.length > 1,
      legend: { orientation: "h", yanchor: "bottom", y: 1.02, x: 0 },
    };
    place.figure = { data, layout };
    return element("figure", null, place, element("figcaption", title));
  }

  function escape(text) {
    return element("i", text).innerHTML; // Plotly reads a few tags in names
  }

  function fillRun(key) {
    const run = runs[key];
    const { label, condition, spec, environment, color, curves, traces, ...facts } = run;
    const settings = { ...spec.task_settings, ...spec.model_settings, ...spec.training };
    const given = Object.entries(settings).map(([name, value]) => `-s ${name}=${value ?? "none"}`);
    const reproduce = ["orthobench run", spec.task, spec.model, "--seed", spec.seed, ...given].join(" ");
    const plots = element("div", null);
    plots.className = "pair";
    for (const curve of curves) plots.append(plot(curve.name, [curve], "iteration", curve.name.startsWith("probe "), color));
    const vectors = Map.groupBy ? Map.groupBy(traces, ({ name }) => name.split(",")[0]) : new Map(traces.map((t) => [t.name, [t]]));
    for (const [name, series] of vectors) plots.append(plot(name, series, "step", true, color));
    const copy = element("button", "copy");
    copy.type = "button";
    copy.addEventListener("click", () => navigator.clipboard?.writeText(reproduce));
    const place = document.getElementById("view-run");
    place.replaceChildren(
      element("h2", `Run ${key}`), element("p", `${label} on ${condition}, seed ${run.seed}`),
      plots,
      element("h3", "To make it again"), element("pre", reproduce), copy,
      element("h3", "Result"), table(facts),
      element("h3", "Settings"), table({ ...settings, task_version: spec.task_version, model_version: spec.model_version }),
      element("h3", "Environment"), table(environments[environment]),
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
