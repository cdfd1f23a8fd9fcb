// The digest of a file as the portal reckons it (docs/agent-protocol.md, "Digests").
const SMALLEST = 8 * 2 ** 20;
const MOST_CHUNKS = 9500;

export const canHash = Boolean(globalThis.crypto?.subtle);

const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export async function digestOf(file) {
  let size = SMALLEST;
  while (file.size > size * MOST_CHUNKS) size *= 2;
  const count = Math.max(1, Math.ceil(file.size / size));
  const all = new Uint8Array(count * 32);
  for (let index = 0; index < count; index += 1) {
    const chunk = await file.slice(index * size, (index + 1) * size).arrayBuffer();
    all.set(new Uint8Array(await crypto.subtle.digest("SHA-256", chunk)), index * 32);
  }
  return count === 1 ? hex(all) : `${hex(await crypto.subtle.digest("SHA-256", all))}-${count}`;
}
