/** SHA-256: the browser's, or (where a page is no secure context and has none) this one. */

export async function sha256(data: Uint8Array): Promise<string> {
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  const digest = subtle ? new Uint8Array(await subtle.digest("SHA-256", data as Uint8Array<ArrayBuffer>)) : plainSha256(data);
  return Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
}

/** The first 32 bits of the fractional parts of the n-th roots of the first primes: where the constants of SHA-256 come from. */
function roots(count: number, power: number): Uint32Array {
  const result = new Uint32Array(count);
  for (let prime = 2, found = 0; found < count; prime++) {
    let divisor = 2;
    while (divisor * divisor <= prime && prime % divisor) divisor++;
    if (divisor * divisor <= prime) continue;
    const root = prime ** power;
    result[found++] = (root - Math.floor(root)) * 2 ** 32;
  }
  return result;
}

const rotate = (x: number, n: number): number => (x >>> n) | (x << (32 - n));

export function plainSha256(data: Uint8Array): Uint8Array {
  const k = roots(64, 1 / 3), h = roots(8, 1 / 2), w = new Uint32Array(64);
  const rest = data.length % 64, tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(data.subarray(data.length - rest));
  tail[rest] = 0x80;
  const end = new DataView(tail.buffer);
  end.setUint32(tail.length - 8, Math.floor(data.length / 2 ** 29));
  end.setUint32(tail.length - 4, data.length << 3);
  for (let at = 0; at + 64 <= data.length; at += 64) block(data, at, h, w, k);
  for (let at = 0; at < tail.length; at += 64) block(tail, at, h, w, k);
  const result = new DataView(new ArrayBuffer(32));
  h.forEach((v, i) => result.setUint32(4 * i, v));
  return new Uint8Array(result.buffer);
}

function block(data: Uint8Array, at: number, state: Uint32Array, w: Uint32Array, k: Uint32Array): void {
  const view = new DataView(data.buffer, data.byteOffset + at, 64);
  for (let i = 0; i < 64; i++) {
    if (i < 16) w[i] = view.getUint32(4 * i);
    else {
      const x = w[i - 15]!, y = w[i - 2]!;
      const s0 = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3), s1 = rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10);
      w[i] = w[i - 16]! + s0 + w[i - 7]! + s1;
    }
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const t1 = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + k[i]! + w[i]!;
    const t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((v, i) => { state[i]! += v; });
}
