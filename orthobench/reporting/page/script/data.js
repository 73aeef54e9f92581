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
 * Return a promise of a block's record and of the whole numbers after it.
 * @param {string} name
 * @returns {Promise<Numbered>}
 */
function unpackNumbers(name) {
  if (!unpacked.has(name)) unpacked.set(name, inflate(holderOf(name)).arrayBuffer().then((buffer) => numbered(new Uint8Array(buffer))));
  return unpacked.get(name);
}

/**
 * Return a record and the numbers that `WholeNumbers` packs after it as steps: all first bytes before all second ones.
 * @param {Uint8Array} bytes
 * @returns {Numbered}
 */
function numbered(bytes) {
  const start = bytes.indexOf(10) + 1, count = (bytes.length - start) / 4;
  const integers = new Int32Array(count);
  for (let at = 0, sum = 0; at < count; at++) {
    let step = 0;
    for (let byte = 0; byte < 4; byte++) step |= bytes[start + byte * count + at] << (8 * byte);
    integers[at] = sum = (sum + ((step >>> 1) ^ -(step & 1))) | 0;
  }
  return { record: JSON.parse(new TextDecoder().decode(bytes.subarray(0, start))), integers };
}

/**
 * Return the number of a code (`decimal_codes`) with this count of significant digits; null for a missing one.
 * @param {number} code
 * @param {number} count
 */
function decimal(code, count) {
  if (code === 0) return null;
  if (code === 1) return 0;
  const least = 10 ** (count - 1), place = Math.abs(code) - 2;
  return Number(`${code < 0 ? "-" : ""}${least + (place % (9 * least))}e${Math.floor(place / (9 * least)) - 399 - count}`);
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
  return figuresOf(numbered(gunzip(packed(holderOf(name)))));
}

/**
 * Return the details of a run as `run_details` packs them, with the numbers of its curves and of their axes.
 * @param {string} name
 * @param {string} key
 * @returns {Promise<any>}
 */
export async function unpackRun(name, key) {
  const { record, integers } = await unpackNumbers(name);
  const run = record.runs[key];
  /** @type {Record<number, number[]>} */
  const axes = {};
  /** @param {"curves" | "traces"} kind */
  const filled = (kind) => run[kind].map(/** @param {{ x: number, y: number }} curve */ ({ x, y, ...rest }) => {
    const axis = record.axes[x];
    axes[x] = Array.isArray(axis) ? Array.from(integers.subarray(axis[0], axis[0] + axis[1])) : Array.from(numbers(axis));
    return { ...rest, x, y: axes[x].map((_, at) => decimal(integers[y + at], record.digits[kind])) };
  });
  return { ...run, curves: filled("curves"), traces: filled("traces"), axes };
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
 * @param {Numbered} block
 * @returns {FigureBlock}
 */
function figuresOf({ record, integers }) {
  /** @param {PackedTrace} trace */
  const filled = ({ x, y, ...rest }) => {
    const places = typeof x === "number" ? record.axes[x] : x;
    return { ...rest, x: places, y: typeof y === "number" ? Array.from(places, (_, at) => decimal(integers[y + at], 5)) : y };
  };
  return { ...record, whole: filled };
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
