// The page of a run: its curves with the baseline, its results and settings, the command, and links back.

import { unpack, unpackIndex } from "./data.js";
import { chip, copyButton, element, link, tableOf, withAttributes } from "./elements.js";
import { plot } from "./plot.js";
import { runRecord, secondsPerEpoch } from "./runs.js";
import { duration, runCommand, shownBytes, shownNumber } from "./words.js";

/**
 * Return the vectors of a probe by name, each with its first and its last measurement.
 * @param {Curve[]} traces
 * @returns {Map<string, Curve[]>}
 */
function byVector(traces) {
  const groups = new Map();
  for (const trace of traces) {
    const name = trace.name.replace(/, epoch [^,]*$/, "");
    groups.set(name, [...(groups.get(name) ?? []), trace]);
  }
  return groups;
}

/**
 * Return lines that shade the training lengths behind a metric over length, as high as its lines.
 * @param {RunRecord} run
 * @param {Line[]} lines
 * @returns {Line[]}
 */
function shade({ trained }, lines) {
  if (!trained) return [];
  const top = Math.max(...lines.flatMap(({ y }) => y.filter((value) => Number.isFinite(value))), 0);
  const edge = { x: trained, width: 0, color: "#888888", showlegend: false, hoverinfo: "skip" };
  const name = `trained on ${trained[0]} to ${trained[1]}`;
  return [
    { ...edge, name, y: [top, top] }, { ...edge, name, y: [0, 0], fill: "tonexty", fillcolor: "rgba(136,136,136,0.16)" },
    { name, x: trained, y: [0, 0], color: "#888888", width: 7, hoverinfo: "skip" },
  ];
}

/**
 * Return how a run ended, in a few words.
 * @param {RunRecord} run
 */
function ending(run) {
  const at = run.iterations.toLocaleString("en"), total = run.total.toLocaleString("en");
  if (run.status === "finished") return run.solved ? `solved at ${at}` : `${run.metric} ${shownNumber(run.end)}`;
  if (run.status === "running") return `running, at ${at} of ${total}`;
  return run.status === "interrupted" ? `stopped at ${at} of ${total}` : `${run.status} at ${at}`;
}

/** @param {string} key */
export async function fillRun(key) {
  const run = await runRecord(key);
  const view = document.getElementById("run");
  if (!run) return false;
  const { appearances, variants } = await unpackIndex();
  const { color } = variants[run.variant];
  const environment = (await unpack("environments"))[run.environment];
  const command = runCommand(run.spec.task, run.spec.model, run.spec.seed ?? run.seed, { ...run.spec.task_settings, ...run.spec.model_settings, ...run.spec.training });
  /** @type {Rates} */
  const rates = { [run.label]: [run.perEpoch, secondsPerEpoch(run)] };
  const about = { rates, command };
  const plots = withAttributes(element("div", null), { class: "pair" });
  const main = `test ${run.metric}`;
  for (const { name, x, y, of } of [...run.curves].sort((first, second) => Number(second.name === main) - Number(first.name === main))) {
    const isMain = name === main;
    plots.append(plot(isMain ? `${name}, with the baseline` : name, [{ name, x: run.axes[x], y, of, color, meta: { label: run.label } }], {
      x: "iteration", y: isMain ? run.condition.axis : name, logarithmic: name.startsWith("probe "), baseline: isMain ? run.baseline : null, ...about,
    }));
  }
  for (const [name, traces] of byVector(run.traces)) {
    const lines = traces.map((trace, number) => ({ name: trace.name, y: trace.y, of: trace.of, x: run.axes[trace.x], color, dash: ["dot", "solid"][number] }));
    const metric = name.startsWith("by_length/") ? name.slice("by_length/".length) : null;
    plots.append(metric === null
      ? plot(name, lines, { x: "step", y: name, logarithmic: true, command })
      : plot(`test ${metric} over the length of the test sequences`, [...shade(run, lines), ...lines.map((line) => ({ ...line, name: line.name.replace("by_length/", "") }))], {
        x: "length of the test sequence", y: `test ${metric}`, baseline: metric === run.metric ? run.baseline : null, command,
      }));
  }
  const better = run.end === null || run.baseline === null ? null : run.condition.goal === "min" ? run.end < run.baseline : run.end > run.baseline;
  const { status, ...facts } = run.facts;
  const result = [
    [`test ${run.metric}, end`, shownNumber(run.end)], [`test ${run.metric}, last`, shownNumber(run.final)], run.validated === null ? [`test ${run.metric}, best`, shownNumber(run.best)] : [`test ${run.metric}, at best validation`, shownNumber(run.validated)],
    ["baseline, the best predictor without memory", shownNumber(run.baseline)], ["better than the baseline", better === null ? "–" : better ? "yes" : "no"],
    ["epochs", shownNumber(run.epochs)], ["parameters", run.parameters.toLocaleString("en")], ["time", duration(run.seconds)],
    ...Object.entries(run.phases).sort(([, first], [, second]) => second - first).map(([phase, seconds]) => [phase === "cpu" ? "processor time, all threads" : `time of ${phase}`, duration(seconds)]),
    ...(run.untimed ? [["time of the phases", run.untimed]] : []),
    ["peak memory", shownBytes(run.memory)], ...Object.entries(facts),
  ];
  const back = element("p", null, link(`#${run.condition.key}`, run.condition.label), " · ", link(`#runs?condition=${encodeURIComponent(run.condition.key)}&q=${encodeURIComponent(`seed=${run.seed}`)}`, "runs of this task and seed"), " · ", link(`#runs?model=${encodeURIComponent(run.model)}`, "runs of this model"));
  for (const [place, text] of appearances[key] ?? []) back.append(" · ", link(`#${place}`, text));
  view.replaceChildren(
    element("h2", `${run.label} on ${run.condition.label}, seed ${run.seed}: ${ending(run)}`),
    element("p", null, chip(status), " run ", element("code", key), ...(run.facts.tags ? [" · ", element("bdi", run.facts.tags)] : []), ...(run.facts.message ? [" · ", element("bdi", run.facts.message)] : [])),
    withAttributes(back, { class: "note" }), plots,
    element("h3", "To reproduce this run"), element("pre", command), copyButton(command),
    element("h3", "Result"), tableOf("Result", [], result),
    element("h3", "Settings"), tableOf("Settings", [], Object.entries(run.settings)),
    element("h3", "Environment"), tableOf("Environment", [], Object.entries(environment)),
  );
  return true;
}
