// Keys do what the mouse does by dragging: zoom into the middle of a focused figure, move it, or reset it.

/** @type {Record<string, number>} */
const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2 };

const AXES = /** @type {const} */ (["xaxis", "yaxis"]);

/** @type {Record<string, ["xaxis" | "yaxis", number]>} */
const MOVES = { ArrowLeft: ["xaxis", -0.25], ArrowRight: ["xaxis", 0.25], ArrowDown: ["yaxis", -0.25], ArrowUp: ["yaxis", 0.25] };

/**
 * Return a range that is some times as wide, and moved by a share of its width.
 * @param {number[]} range
 * @param {number} zoom
 * @param {number} share
 */
function changed([from, to], zoom, share) {
  const middle = (from + to) / 2 + share * (to - from), reach = zoom * (to - from) / 2;
  return [middle - reach, middle + reach];
}

/** @param {Plot} container */
export function workByKeys(container) {
  container.tabIndex = 0;
  container.setAttribute("aria-keyshortcuts", ["+", "-", ...Object.keys(MOVES), "0"].join(" "));
  container.onkeydown = (event) => {
    const zoom = ZOOMS[event.key];
    const [moved, share] = MOVES[event.key] ?? [];
    if (event.ctrlKey || event.altKey || event.metaKey || !container.drawn || !(zoom || moved || event.key === "0")) return;
    event.preventDefault();
    /** @type {Record<string, number[] | boolean>} */
    const ranges = {};
    for (const axis of moved ? [moved] : AXES) {
      const whole = container.drawn[axis].range;
      if (event.key !== "0") ranges[axis + ".range"] = changed(container.layout[axis].range, zoom ?? 1, share ?? 0);
      else if (whole) ranges[axis + ".range"] = whole;
      else ranges[axis + ".autorange"] = true;
    }
    Plotly.relayout(container, ranges);
  };
}
