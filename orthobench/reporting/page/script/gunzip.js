// Unpacks gzip data at once, for print: the browser's DecompressionStream needs turns for which print does not wait.

const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]; // of the lengths of the codes' codes
const LONGEST = 15; // bits of a code

/**
 * @typedef {{ counts: Uint16Array, symbols: Uint16Array }} Code how many codes of each length, and their symbols in order
 */

/**
 * Return the bytes of a gzip file with a single member (RFC 1952) of deflated blocks (RFC 1951).
 * @param {Uint8Array} packed
 */
export function gunzip(packed) {
  const flags = packed[3];
  let at = 10;
  if (flags & 4) at += 2 + packed[at] + 256 * packed[at + 1];
  for (const text of [8, 16]) if (flags & text) at = packed.indexOf(0, at) + 1;
  if (flags & 2) at += 2;
  const size = new DataView(packed.buffer, packed.byteOffset).getUint32(packed.length - 4, true);
  return inflate(packed, at, new Uint8Array(size));
}

/**
 * @param {Uint8Array} packed
 * @param {number} at the place of the first block
 * @param {Uint8Array} out an array of the size of the content
 */
function inflate(packed, at, out) {
  let held = 0, count = 0, end = 0; // bits that are read but not used, their number, and the bytes that are written
  /** @param {number} wanted */
  const bits = (wanted) => {
    for (; count < wanted; count += 8) held |= packed[at++] << count;
    const value = held & ((1 << wanted) - 1);
    held >>>= wanted;
    count -= wanted;
    return value;
  };
  /** @param {Code} code */
  const symbol = ({ counts, symbols }) => {
    for (let length = 1, value = 0, first = 0, index = 0; length <= LONGEST; length++) {
      value |= bits(1);
      if (value - first < counts[length]) return symbols[index + value - first];
      index += counts[length];
      first = (first + counts[length]) << 1;
      value <<= 1;
    }
    throw new Error("not a deflated block");
  };
  for (let isLast = 0; !isLast;) {
    isLast = bits(1);
    const kind = bits(2);
    if (kind === 0) {
      held = count = 0; // the rest of the byte
      const size = packed[at] + 256 * packed[at + 1];
      out.set(packed.subarray(at + 4, at + 4 + size), end);
      at += 4 + size;
      end += size;
      continue;
    }
    const [literals, distances] = kind === 1 ? FIXED : dynamic(bits, symbol);
    for (let next = symbol(literals); next !== 256; next = symbol(literals)) {
      if (next < 256) out[end++] = next;
      else {
        const length = lengthOf(next - 257, bits), distance = distanceOf(symbol(distances), bits);
        for (const stop = end + length; end < stop; end++) out[end] = out[end - distance];
      }
    }
  }
  return out;
}

/**
 * @param {number[]} lengths
 * @returns {Code}
 */
function codeOf(lengths) {
  const counts = new Uint16Array(LONGEST + 1), offsets = new Uint16Array(LONGEST + 2), symbols = new Uint16Array(lengths.length);
  for (const length of lengths) if (length) counts[length]++;
  for (let length = 1; length <= LONGEST; length++) offsets[length + 1] = offsets[length] + counts[length];
  lengths.forEach((length, number) => { if (length) symbols[offsets[length]++] = number; });
  return { counts, symbols };
}

const FIXED = [codeOf(Array.from({ length: 288 }, (_, number) => (number < 144 ? 8 : number < 256 ? 9 : number < 280 ? 7 : 8))), codeOf(Array(30).fill(5))];

/**
 * Read the codes of a block that has its own.
 * @param {(wanted: number) => number} bits
 * @param {(code: Code) => number} symbol
 * @returns {Code[]}
 */
function dynamic(bits, symbol) {
  const literals = bits(5) + 257, distances = bits(5) + 1, ordered = bits(4) + 4;
  const lengths = Array(19).fill(0);
  for (const number of ORDER.slice(0, ordered)) lengths[number] = bits(3);
  const code = codeOf(lengths);
  /** @type {number[]} */
  const own = [];
  while (own.length < literals + distances) {
    const next = symbol(code);
    if (next < 16) own.push(next);
    else if (next === 16) own.push(...Array(3 + bits(2)).fill(own[own.length - 1]));
    else own.push(...Array(next === 17 ? 3 + bits(3) : 11 + bits(7)).fill(0));
  }
  return [codeOf(own.slice(0, literals)), codeOf(own.slice(literals))];
}

/**
 * @param {number} place of the symbol among those of lengths
 * @param {(wanted: number) => number} bits
 */
function lengthOf(place, bits) {
  if (place === 28) return 258;
  const more = place < 8 ? 0 : (place >> 2) - 1;
  return 3 + (more ? ((4 + (place & 3)) << more) : place) + bits(more);
}

/**
 * @param {number} place
 * @param {(wanted: number) => number} bits
 */
function distanceOf(place, bits) {
  const more = place < 4 ? 0 : (place >> 1) - 1;
  return 1 + (more ? ((2 + (place & 1)) << more) : place) + bits(more);
}
