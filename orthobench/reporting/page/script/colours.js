// The colours of the page and of its figures, on a light and on a dark ground and on paper.

import { broken, hasNamedRows, LOG_TICKS } from "./traces.js";

export const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** @type {Record<string, string>} */
const LIGHT = { "--ground": "#ffffff", "--ink": "#1a1f26", "--line": "#dce1e7", "--card": "#f5f7f9" };

export const GREY = "#888888"; // of baselines, and of the models after those of the palette

// What the page looks like now: the colours of models, and whether it is being printed.
export const theme = { palette: /** @type {string[]} */ ([]), printing: false };

/** @param {string} name */
export function colour(name) {
  return (theme.printing && LIGHT[name]) || getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * Return a model's colour for the current background, because the palette's colours are too dim on a dark one.
 * @param {string} hex
 */
function onGround(hex) {
  const number = theme.palette.findIndex((entry) => entry.toLowerCase() === hex.toLowerCase());
  return number < 0 || theme.printing ? hex : colour(`--model-${number}`) || hex;
}

/**
 * @param {Trace} trace
 * @returns {Trace}
 */
export function themed(trace) {
  const result = { ...trace };
  for (const part of /** @type {const} */ (["line", "marker"])) {
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

/**
 * @param {Layout} layout
 * @param {number} width
 * @param {number} height
 * @returns {Layout}
 */
export function inPageColours(layout, width, height) {
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
    yaxis: { ...layout.yaxis, ...axis, ...(hasNamedRows(layout, width) && { ticklabelposition: "inside top" }), ...(layout.yaxis?.type === "log" && { nticks: LOG_TICKS }), title: broken(layout.yaxis?.title, (height - 60) / 9) },
  };
}

export const LINE_STYLES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

/** @param {number} number */
export function lineStyle(number) {
  return { color: theme.palette[number % theme.palette.length], dash: LINE_STYLES[Math.floor(number / theme.palette.length) % LINE_STYLES.length] };
}
