/** SHA-256: the browser's, or (where a page is no secure context and has none) this one. */

export async function sha256(data: Uint8Array): Promise<string> {
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  const digest = subtle ? new Uint8Array(await subtle.digest("SHA-256", data as Uint8Array<ArrayBuffer>)) : plainSha256(data);
  return Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
}

const rotate = (x: number, n: number): number => (x >>> n) | (x << (32 - n));

/** The first 32 bits of the fractional parts of roots of the first primes: where the constants of SHA-256 come from. */
function roots(count: number, power: number): Uint32Array {
  const primes: number[] = [];
  for (let n = 2; primes.length < count; n++) if (primes.every((p) => n % p)) primes.push(n);
  return Uint32Array.from(primes, (p) => (p ** power % 1) * 2 ** 32);
}

export function plainSha256(data: Uint8Array): Uint8Array {
  const k = roots(64, 1 / 3), state = roots(8, 1 / 2), w = new Uint32Array(64), rest = data.length % 64;
  const tail = new Uint8Array(rest < 56 ? 64 : 128), end = new DataView(tail.buffer);
  tail.set(data.subarray(data.length - rest));
  tail[rest] = 0x80;
  end.setBigUint64(tail.length - 8, BigInt(data.length) * 8n);
  for (const part of [data.subarray(0, data.length - rest), tail]) {
    const view = new DataView(part.buffer, part.byteOffset);
    for (let at = 0; at < part.length; at += 64) block(view, at, state, w, k);
  }
  state.forEach((v, i) => end.setUint32(4 * i, v)); // the tail is no longer needed
  return tail.subarray(0, 32);
}

function block(view: DataView, at: number, state: Uint32Array, w: Uint32Array, k: Uint32Array): void {
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const x = w[i - 15]!, y = w[i - 2]!;
    w[i] = i < 16 ? view.getUint32(at + 4 * i)
      : w[i - 16]! + (rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3)) + w[i - 7]! + (rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10));
    const t = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + k[i]! + w[i]!;
    const u = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + t) | 0, c, b, a, (t + u) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((v, i) => { state[i]! += v; });
}
