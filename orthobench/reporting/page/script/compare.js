// Ticked runs side by side.

import { LINE_STYLES, theme } from "./colours.js";
import { element, link, tableOf, withAttributes } from "./elements.js";
import { plot } from "./plot.js";
import { runRecord, secondsPerEpoch } from "./runs.js";
import { runCommand, shownNumber } from "./words.js";

const COMPARED = 24; // the most runs, because more lines cannot be told apart

/**
 * Return a style for each run: a colour for each variant, and a dash for each of its runs.
 * @param {Run[]} records
 */
function stylesOf(records) {
  /** @type {Map<string, [number, number]>} */
  const seen = new Map();
  return records.map(({ label, title }) => {
    const variant = `${label}, ${title}`, [number, runs] = seen.get(variant) ?? [seen.size, 0];
    seen.set(variant, [number, runs + 1]);
    return { color: theme.palette[number % theme.palette.length], dash: LINE_STYLES[runs % LINE_STYLES.length] };
  });
}

/** @param {Record<string, string>} state */
export async function fillCompare(state) {
  const keys = (state.runs ?? "").split(",").filter(Boolean);
  const records = (await Promise.all(keys.slice(0, COMPARED).map(runRecord))).filter(Boolean);
  const view = document.getElementById("compare");
  if (!records.length) return false;
  /** @param {RunRecord} run */
  const name = (run) => `${run.label}, seed ${run.seed} (${run.key.slice(0, 6)})`;
  const settings = [...new Set(records.flatMap((run) => Object.keys(run.settings)))];
  const differing = settings.filter((setting) => new Set(records.map((run) => JSON.stringify(run.settings[setting]))).size > 1);
  /** @type {[string, (run: RunRecord) => unknown][]} */
  const facts = [["task", (run) => run.title], ["seed", (run) => run.seed], ["status", (run) => run.status], ["metric", (run) => run.metric],
    ["end", (run) => shownNumber(run.end)], ["best", (run) => shownNumber(run.best)], ["at best validation", (run) => shownNumber(run.validated)], ["baseline", (run) => shownNumber(run.baseline)], ["parameters", (run) => run.parameters], ["seconds", (run) => shownNumber(run.seconds)]];
  const rows = [...facts.map(([fact, value]) => [fact, ...records.map(value)]), ...differing.map((setting) => [setting, ...records.map((run) => run.settings[setting])])];
  const links = records.map((run) => element("li", null, withAttributes(element("a", null, element("bdi", name(run))), { href: `#run-${run.key}` })));
  const curves = [...new Set(records.flatMap((run) => run.curves.map((curve) => curve.name)))];
  /** @type {Rates} */
  const rates = Object.fromEntries(records.map((run) => [name(run), [run.perEpoch, secondsPerEpoch(run)]]));
  const styles = stylesOf(records);
  const plots = withAttributes(element("div", null), { class: "pair" });
  for (const curve of curves) {
    const lines = records.flatMap((run, number) => run.curves.filter((own) => own.name === curve).map(({ x, y, of }) => ({ name: name(run), x: run.axes[x], y, of, meta: { label: name(run) }, ...styles[number] })));
    const baselines = new Set(records.map((run) => run.baseline));
    const isMain = records.every((run) => curve === `test ${run.metric}`);
    plots.append(plot(curve, lines, { x: "iteration", y: curve, logarithmic: curve.startsWith("probe "), baseline: isMain && baselines.size === 1 ? records[0].baseline : null, small: false, rates, command: records.map((run) => runCommand(run.spec.task, run.spec.model, run.seed, run.settings)).join("\n") }));
  }
  view.replaceChildren(
    element("h2", `${records.length} runs compared`),
    ...(keys.length > COMPARED ? [element("p", `ticked runs: ${keys.length}, shown: the first ${COMPARED}`)] : []),
    element("ul", null, ...links), element("p", null, link(`#runs?pick=${encodeURIComponent(keys.join(","))}`, "back to the table of runs")),
    element("h3", differing.length ? "Results, and the settings that differ" : "Results; no setting differs"), tableOf("Differences", ["", ...records.map(name)], rows),
    element("h3", "Curves"), plots,
  );
  return true;
}
