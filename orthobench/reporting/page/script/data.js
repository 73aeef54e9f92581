// Unpacks the page's data and creates elements. Everything from the database is inserted as text, never as markup.

const unpacked = new Map();

// Return a promise of a block's bytes, as text or as JSON; each block is unpacked only once.
function unpack(name, kind = "json") {
  if (!unpacked.has(name)) unpacked.set(name, inflate(document.getElementById("data-" + name))[kind]());
  return unpacked.get(name);
}

// Return a promise of a block's record and of the numbers of 32 bits after it.
function unpackNumbers(name) {
  const read = async () => {
    const bytes = new Uint8Array(await inflate(document.getElementById("data-" + name)).arrayBuffer());
    const start = bytes.indexOf(10) + 1, count = (bytes.length - start) / 4;
    const ordered = new DataView(new ArrayBuffer(4 * count));
    for (let at = 0; at < 4 * count; at++) ordered.setUint8(4 * (at % count) + Math.floor(at / count), bytes[start + at]);
    return { record: JSON.parse(new TextDecoder().decode(bytes.subarray(0, start))), ordered, count };
  };
  if (!unpacked.has(name)) unpacked.set(name, read());
  return unpacked.get(name);
}

// Return the details of a run as `run_details` packs them, with the numbers of its curves and of their axes.
async function unpackRun(name, key) {
  const { record, ordered, count } = await unpackNumbers(name);
  const whole = new Int32Array(count);
  for (let at = 0, sum = 0; at < count; at++) {
    const step = ordered.getUint32(4 * at, true);
    whole[at] = sum = (sum + ((step >>> 1) ^ -(step & 1))) | 0;
  }
  const run = record.runs[key], axes = {};
  const decimal = (code) => {
    if (code === 0) return null;
    if (code === 1) return 0;
    const place = Math.abs(code) - 2;
    return Number(`${code < 0 ? "-" : ""}${1000 + (place % 9000)}e${Math.floor(place / 9000) - 403}`);
  };
  const filled = ({ x, y, ...rest }) => {
    const axis = record.axes[x];
    axes[x] = Array.isArray(axis) ? whole.slice(axis[0], axis[0] + axis[1]) : numbers(axis);
    return { ...rest, x, y: Array.from(axes[x], (_, at) => decimal(whole[y + at])) };
  };
  return { ...run, curves: run.curves.map(filled), traces: run.traces.map(filled), axes };
}

// Return figures as `packed_figures` packs them, with a function that puts the numbers of a curve in their places.
async function unpackFigures(name) {
  const { record, ordered } = await unpackNumbers(name);
  const value = (at) => ordered.getFloat32(4 * at, true);
  const shown = (number) => (Number.isNaN(number) ? null : Number(number.toPrecision(5)));
  const whole = (trace) => {
    const x = typeof trace.x === "number" ? record.axes[trace.x] : trace.x;
    return { ...trace, x, y: typeof trace.y === "number" ? Array.from(x, (_, number) => shown(value(trace.y + number))) : trace.y };
  };
  return { ...record, whole };
}

function inflate(holder) {
  const bytes = Uint8Array.from(atob(holder.textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// Return the numbers of a list, or of an array in Plotly's packed format.
function numbers(values) {
  if (Array.isArray(values)) return values;
  if (!values?.bdata) return [];
  const bytes = Uint8Array.from(atob(values.bdata), (character) => character.charCodeAt(0)).buffer;
  const kinds = { f4: Float32Array, f8: Float64Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array };
  return new kinds[values.dtype](bytes);
}

function element(kind, text, ...children) {
  const node = document.createElement(kind);
  if (text !== null) node.textContent = text;
  node.append(...children);
  return node;
}

function withAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function link(href, text) {
  return withAttributes(element("a", text), { href });
}

function button(text, act) {
  const node = element("button", text);
  node.type = "button";
  node.addEventListener("click", () => act(node));
  return node;
}

function copyButton(text) {
  return button("copy", (node) => navigator.clipboard?.writeText(text).then(() => { node.textContent = "copied"; }));
}

function scroller(label, ...children) {
  const scroll = element("div", null, ...children);
  scroll.className = "scroll";
  return withAttributes(scroll, { tabindex: 0, role: "region", "aria-label": label });
}

// Return a table; each cell is text or a node, and the first cell of a row is its heading.
function tableOf(label, header, rows) {
  const cell = (kind, content) => (content instanceof Node ? element(kind, null, content) : element(kind, null, element("bdi", shownValue(content))));
  const head = header.length ? [element("thead", null, element("tr", null, ...header.map((text) => withAttributes(element("th", text), { scope: "col" }))))] : [];
  const body = rows.map((row) => element("tr", null, ...row.map((content, number) => (number ? cell("td", content) : withAttributes(cell("th", content), { scope: "row" })))));
  return scroller(label, element("table", null, ...head, element("tbody", null, ...body)));
}

function shownValue(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.map(shownValue).join(", ") || "–";
  if (typeof value === "object") return Object.entries(value).map(([name, part]) => `${name} ${shownValue(part)}`).join(", ") || "–";
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

// Write seconds in the two largest units.
function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return seconds < 600 ? `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s` : `${minutes} min`;
  return minutes < 1440 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

function shownBytes(count) {
  if (typeof count !== "number") return "–";
  return count < 1e9 ? `${Number((count / 1e6).toPrecision(3))} MB` : `${Number((count / 1e9).toPrecision(3))} GB`;
}

// Write a number with four digits, as the report does.
function shownNumber(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return size && (size < 1e-4 || size >= 1e5) ? value.toExponential(3).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(4)));
}

// Return a word for the shell, quoted unless every character is harmless.
function shellQuoted(word) {
  return /^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`;
}

function runCommand(task, model, seed, settings) {
  const chosen = Object.entries(settings).filter(([name]) => name !== "task_version" && name !== "model_version");
  const words = chosen.flatMap(([name, value]) => ["-s", `${name}=${value === null ? "none" : Array.isArray(value) ? value.join(",") : value}`]);
  return ["orthobench", "run", task, model, "--seed", String(seed), ...words].map(shellQuoted).join(" ");
}

function download(name, content, kind) {
  const address = content instanceof Blob || !content.startsWith("data:") ? URL.createObjectURL(new Blob([content], { type: kind })) : content;
  withAttributes(link(address, ""), { download: name }).click();
  if (address.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(address), 1000);
}
