// SHA-256 (FIPS 180-4) for pages without a secure context, where the browser lends none. Some ten
// times slower than WebCrypto: it compares what was begun, and hashes nothing that is only sent.
const BLOCK = 64;

const primes = (count) => {
  const found = [];
  for (let number = 2; found.length < count; number += 1) if (found.every((prime) => number % prime)) found.push(number);
  return found;
};
// The first 32 bits of the fractional part.
const fraction = (number) => ((number - Math.floor(number)) * 2 ** 32) | 0;
const K = Int32Array.from(primes(64), (prime) => fraction(Math.cbrt(prime)));
const START = Int32Array.from(primes(8), (prime) => fraction(Math.sqrt(prime)));

function mix(state, w) {
  let a = state[0];
  let b = state[1];
  let c = state[2];
  let d = state[3];
  let e = state[4];
  let f = state[5];
  let g = state[6];
  let h = state[7];
  for (let t = 0; t < 64; t += 1) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const one = (h + s1 + ((e & f) ^ (~e & g)) + K[t] + w[t]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + one) | 0;
    d = c;
    c = b;
    b = a;
    a = (one + two) | 0;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}

function blocks(state, view, count, w) {
  for (let at = 0; at < count * BLOCK; at += BLOCK) {
    for (let t = 0; t < 16; t += 1) w[t] = view.getInt32(at + 4 * t);
    for (let t = 16; t < 64; t += 1) {
      const x = w[t - 15];
      const y = w[t - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[t] = (w[t - 16] + s0 + w[t - 7] + s1) | 0;
    }
    mix(state, w);
  }
}

// The 32 bytes of the digest of an ArrayBuffer.
export function sha256Slowly(buffer) {
  const state = START.slice();
  const w = new Int32Array(64);
  const size = buffer.byteLength;
  const whole = Math.floor(size / BLOCK);
  blocks(state, new DataView(buffer), whole, w);
  const rest = new Uint8Array(buffer, whole * BLOCK);
  const end = new Uint8Array(rest.length < 56 ? BLOCK : 2 * BLOCK);
  end.set(rest);
  end[rest.length] = 0x80;
  const view = new DataView(end.buffer);
  view.setBigUint64(end.length - 8, BigInt(size) * 8n);
  blocks(state, view, end.length / BLOCK, w);
  const out = new DataView(new ArrayBuffer(32));
  state.forEach((word, at) => out.setInt32(4 * at, word));
  return new Uint8Array(out.buffer);
}
