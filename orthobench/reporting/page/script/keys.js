// Keys do what the mouse does by dragging: zoom into the middle of a focused figure, move it, or reset it.

/** @type {Record<string, number>} */
const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2 };

/** @type {Record<string, ["xaxis" | "yaxis", number]>} */
const MOVES = { ArrowLeft: ["xaxis", -0.25], ArrowRight: ["xaxis", 0.25], ArrowDown: ["yaxis", -0.25], ArrowUp: ["yaxis", 0.25] };

/**
 * @param {Plot} container
 * @param {(container: Plot) => void} reset
 */
export function workByKeys(container, reset) {
  container.tabIndex = 0;
  container.setAttribute("aria-keyshortcuts", ["+", "-", ...Object.keys(MOVES), "0"].join(" "));
  container.onkeydown = (event) => {
    const zoom = ZOOMS[event.key];
    const [moved, share] = MOVES[event.key] ?? [];
    if (event.ctrlKey || event.altKey || event.metaKey || !container.drawn || !(zoom || moved || event.key === "0")) return;
    event.preventDefault();
    if (event.key === "0") return reset(container);
    /** @type {Record<string, number[]>} */
    const ranges = {};
    for (const axis of moved ? [moved] : /** @type {const} */ (["xaxis", "yaxis"])) {
      const [from, to] = container.layout[axis].range;
      const [middle, reach] = [(from + to) / 2 + (share ?? 0) * (to - from), (zoom ?? 1) * (to - from) / 2];
      ranges[axis + ".range"] = [middle - reach, middle + reach];
    }
    Plotly.relayout(container, ranges);
  };
}
