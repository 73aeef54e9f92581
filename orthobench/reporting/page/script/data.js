// Unpacks the page's data.

/** @type {Map<string, Promise<any>>} */
const unpacked = new Map();

/**
 * Return a promise of a block's bytes, as text or as JSON; each block is unpacked only once.
 * @param {string} name
 * @param {"json" | "text" | "arrayBuffer"} [kind]
 * @returns {Promise<any>}
 */
export function unpack(name, kind = "json") {
  if (!unpacked.has(name)) unpacked.set(name, inflate(document.getElementById("data-" + name))[kind]());
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
 * Return figures as `packed_figures` packs them, with a function that puts the numbers of a curve in their places.
 * @param {string} name
 * @returns {Promise<FigureBlock>}
 */
export async function unpackFigures(name) {
  const bytes = new Uint8Array(await unpack(name, "arrayBuffer"));
  const start = bytes.indexOf(10) + 1, count = (bytes.length - start) / 4;
  const record = JSON.parse(new TextDecoder().decode(bytes.subarray(0, start)));
  const ordered = new DataView(new ArrayBuffer(4 * count));
  for (let at = 0; at < 4 * count; at++) ordered.setUint8(4 * (at % count) + Math.floor(at / count), bytes[start + at]);
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

/** @param {HTMLElement} holder */
function inflate(holder) {
  const bytes = Uint8Array.from(atob(holder.textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
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
