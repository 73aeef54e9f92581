// Unpacks the page's data.

/** @type {Map<string, Promise<any>>} */
const unpacked = new Map();

/**
 * Return a promise of a block's JSON, or of its text; each block is unpacked only once.
 * @param {string} name
 * @param {"json" | "text"} [kind]
 * @returns {Promise<any>}
 */
export function unpack(name, kind = "json") {
  if (!unpacked.has(name)) unpacked.set(name, inflate(name)[kind]());
  return unpacked.get(name);
}

/**
 * Return the index of the page: its conditions, variants, runs and searches.
 * @returns {Promise<Index>}
 */
export function unpackIndex() {
  return unpack("index");
}

/** @param {string} name */
function inflate(name) {
  const packed = Uint8Array.from(atob(document.getElementById("data-" + name).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
}
