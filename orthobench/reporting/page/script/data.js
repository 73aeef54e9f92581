// Unpacks the page's data.

import { gunzip } from "./gunzip.js";

/** @type {Map<string, Promise<any>>} */
const unpacked = new Map();

/**
 * Return a promise of a block's bytes, as text or as JSON; each block is unpacked only once.
 * @param {string} name
 * @param {"json" | "text" | "arrayBuffer"} [kind]
 * @returns {Promise<any>}
 */
export function unpack(name, kind = "json") {
  if (!unpacked.has(name)) unpacked.set(name, inflate(holderOf(name))[kind]());
  return unpacked.get(name);
}

/**
 * Return the index of the page: its conditions, variants, runs and searches.
 * @returns {Promise<Index>}
 */
export function unpackIndex() {
  return unpack("index");
}

/**
 * Forget a block that has changed, so that it is unpacked again.
 * @param {string} name
 */
export function forget(name) {
  unpacked.delete(name);
}

/**
 * Return a promise of a block's record and of the numbers of 32 bits after it.
 * @param {string} name
 * @returns {Promise<{ record: any, ordered: DataView, count: number }>}
 */
function unpackNumbers(name) {
  if (!unpacked.has(name)) unpacked.set(name, inflate(holderOf(name)).arrayBuffer().then((buffer) => ordered(new Uint8Array(buffer))));
  return unpacked.get(name);
}

/** @param {Uint8Array} bytes */
function ordered(bytes) {
  const start = bytes.indexOf(10) + 1, count = (bytes.length - start) / 4;
  const ordered = new DataView(new ArrayBuffer(4 * count));
  for (let at = 0; at < 4 * count; at++) ordered.setUint8(4 * (at % count) + Math.floor(at / count), bytes[start + at]);
  return { record: JSON.parse(new TextDecoder().decode(bytes.subarray(0, start))), ordered, count };
}

/**
 * Return a block's text before this function returns, which takes several times as long as `unpack`.
 * @param {string} name
 */
export function unpackNow(name) {
  return new TextDecoder().decode(gunzip(packed(holderOf(name))));
}

/**
 * Return figures like `unpackFigures`, but before this function returns.
 * @param {string} name
 * @returns {FigureBlock}
 */
export function unpackFiguresNow(name) {
  return figuresOf(ordered(gunzip(packed(holderOf(name)))));
}

/**
 * Return the details of a run as `run_details` packs them, with the numbers of its curves and of their axes.
 * @param {string} name
 * @param {string} key
 * @returns {Promise<any>}
 */
export async function unpackRun(name, key) {
  const { record, ordered, count } = await unpackNumbers(name);
  const steps = new Int32Array(count);
  for (let at = 0, sum = 0; at < count; at++) {
    const step = ordered.getUint32(4 * at, true);
    steps[at] = sum = (sum + ((step >>> 1) ^ -(step & 1))) | 0;
  }
  const run = record.runs[key];
  /** @type {Record<number, number[]>} */
  const axes = {};
  /** @param {number} code */
  const decimal = (code) => {
    if (code === 0) return null;
    if (code === 1) return 0;
    const place = Math.abs(code) - 2;
    return Number(`${code < 0 ? "-" : ""}${1000 + (place % 9000)}e${Math.floor(place / 9000) - 403}`);
  };
  /** @param {{ x: number, y: number }} curve */
  const filled = ({ x, y, ...rest }) => {
    const axis = record.axes[x];
    axes[x] = Array.isArray(axis) ? Array.from(steps.subarray(axis[0], axis[0] + axis[1])) : Array.from(numbers(axis));
    return { ...rest, x, y: axes[x].map((_, at) => decimal(steps[y + at])) };
  };
  return { ...run, curves: run.curves.map(filled), traces: run.traces.map(filled), axes };
}

/**
 * Return figures as `packed_figures` packs them, with a function that puts the numbers of a curve in their places.
 * @param {string} name
 * @returns {Promise<FigureBlock>}
 */
export async function unpackFigures(name) {
  return figuresOf(await unpackNumbers(name));
}

/**
 * @param {{ record: any, ordered: DataView }} block
 * @returns {FigureBlock}
 */
function figuresOf({ record, ordered }) {
  /** @param {number} at */
  const value = (at) => ordered.getFloat32(4 * at, true);
  /** @param {number} number */
  const shown = (number) => (Number.isNaN(number) ? null : Number(number.toPrecision(5)));
  /** @param {PackedTrace} trace */
  const whole = (trace) => {
    const x = typeof trace.x === "number" ? record.axes[trace.x] : trace.x;
    return { ...trace, x, y: typeof trace.y === "number" ? Array.from(x, (_, number) => shown(value(Number(trace.y) + number))) : trace.y };
  };
  return { ...record, whole };
}

/** @param {string} name */
function holderOf(name) {
  return document.getElementById("data-" + name);
}

/** @param {HTMLElement} holder */
function packed(holder) {
  return Uint8Array.from(atob(holder.textContent), (character) => character.charCodeAt(0));
}

/** @param {HTMLElement} holder */
function inflate(holder) {
  return new Response(new Blob([packed(holder)]).stream().pipeThrough(new DecompressionStream("gzip")));
}

/**
 * Return the numbers of a list, or of an array in Plotly's packed format.
 * @param {Values} values
 * @returns {number[]}
 */
export function numbers(values) {
  if (Array.isArray(values)) return /** @type {number[]} */ (values);
  if (!values?.bdata) return [];
  const bytes = Uint8Array.from(atob(values.bdata), (character) => character.charCodeAt(0)).buffer;
  /** @type {Record<string, new (bytes: ArrayBuffer) => ArrayLike<number>>} */
  const kinds = { f4: Float32Array, f8: Float64Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array };
  return /** @type {number[]} */ (new kinds[values.dtype](bytes));
}
