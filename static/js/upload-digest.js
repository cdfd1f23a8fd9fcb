// Digests as the portal reckons them (docs/agent-protocol.md, "Digests").
const SMALLEST = 8 * 2 ** 20;
const MOST_CHUNKS = 9500;

// Without a secure context there is no WebCrypto: the portal computes digests alone.
export const canHash = Boolean(globalThis.crypto?.subtle);

export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

export const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export const hexDigest = async (bytes) => hex(await sha256(bytes));

export const base64 = (bytes) => btoa(String.fromCharCode(...bytes));

// The digest of a whole file; `read(bytes)` hears how far it is, `signal` stops it.
export async function digestOf(file, { signal, read } = {}) {
  let size = SMALLEST;
  while (file.size > size * MOST_CHUNKS) size *= 2;
  const count = Math.max(1, Math.ceil(file.size / size));
  const all = new Uint8Array(count * 32);
  let next = file.slice(0, size).arrayBuffer();
  for (let index = 0; index < count; index += 1) {
    const chunk = await next;
    signal?.throwIfAborted();
    next = file.slice((index + 1) * size, (index + 2) * size).arrayBuffer(); // read while hashing
    all.set(await sha256(chunk), index * 32);
    read?.(Math.min(file.size, (index + 1) * size));
  }
  return count === 1 ? hex(all) : `${await hexDigest(all)}-${count}`;
}
