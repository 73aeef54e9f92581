// Values, numbers, times and commands as text.

/**
 * @param {unknown} value
 * @returns {string}
 */
export function shownValue(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.map(shownValue).join(", ") || "–";
  if (typeof value === "object") return Object.entries(value).map(([name, part]) => `${name} ${shownValue(part)}`).join(", ") || "–";
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

/**
 * Write seconds in the two largest units.
 * @param {number | null} seconds
 */
export function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return seconds < 600 ? `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s` : `${minutes} min`;
  return minutes < 1440 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** @param {number | null} count */
export function shownBytes(count) {
  if (typeof count !== "number") return "–";
  return count < 1e9 ? `${Number((count / 1e6).toPrecision(3))} MB` : `${Number((count / 1e9).toPrecision(3))} GB`;
}

/**
 * Write a number with four digits, as the report does.
 * @param {unknown} value
 */
export function shownNumber(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return size && (size < 1e-4 || size >= 1e5) ? value.toExponential(3).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(4)));
}

/**
 * Return a word for the shell, quoted unless every character is harmless.
 * @param {string} word
 */
function shellQuoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;
}

/**
 * Return the settings without versions, with values as commands take them.
 * @param {Settings} settings
 */
function withoutVersions(settings) {
  return Object.entries(settings).filter(([name]) => name !== "task_version" && name !== "model_version");
}

/** @param {Settings} settings */
function settingWords(settings) {
  return withoutVersions(settings).flatMap(([name, value]) => ["-s", `${name}=${value === null ? "none" : Array.isArray(value) ? value.join(",") : value}`]);
}

/**
 * Return the command that trains a model with this number of seeds; a model of a notebook needs Python. Runs that exist
 * are not trained again.
 * @param {string} task
 * @param {string} model
 * @param {number} seeds
 * @param {Settings} settings
 * @param {string} [plugin] the file that defines the model
 */
export function seedsCommand(task, model, seeds, settings, plugin) {
  const [, cell] = /^notebook:(.*)/.exec(model) ?? [];
  if (!cell) return ["orthobench", "sweep", task, "--models", /^[^/]*\.py:/.test(model) ? `./${model}` : model, ...(plugin ? ["--plugin", plugin] : []), "--seeds", String(seeds), ...settingWords(settings)].map(shellQuoted).join(" ");
  /** @param {unknown} value */
  const python = (value) => ({ true: "True", false: "False", null: "None" }[String(value)] ?? JSON.stringify(value));
  return `ob.sweep(${[JSON.stringify(task), `[${cell}]`, `seeds=${seeds}`, ...withoutVersions(settings).map(([name, value]) => `${name}=${python(value)}`)].join(", ")})`;
}

/**
 * @param {string} task
 * @param {string} model
 * @param {number} seed
 * @param {Settings} settings
 */
export function runCommand(task, model, seed, settings) {
  return ["orthobench", "run", task, model, "--seed", String(seed), ...settingWords(settings)].map(shellQuoted).join(" ");
}
