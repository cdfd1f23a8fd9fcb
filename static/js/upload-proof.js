// Whether what the portal holds of a file is this file. Name, size and time do not tell: a file may
// have been written anew between two attempts with all three as they were. Its bytes do.
import { check, meaning } from "./upload-answers.js";
import { canHash, hex, sha256 } from "./upload-digest.js";
import { Backoff, Refused, request } from "./upload-http.js";
import { sha256Slowly } from "./upload-sha256.js";

const FEWER = ["again", "moved"];
const CHANGED = "its bytes changed on your disk, though its size and date are the same";

const digest = async (buffer) => hex(canHash ? await sha256(buffer) : sha256Slowly(buffer));

// The digests of bytes `from` to `to` as the portal holds them; null when it holds fewer by now.
async function held({ url, headers, from, to, signal }) {
  const backoff = new Backoff(signal);
  for (;;) {
    try {
      const answer = await request("GET", `${url}/digests?from=${from}&to=${to}`, { headers, signal });
      if (FEWER.includes(meaning("address", answer))) return null;
      return check("address", answer).body;
    } catch (error) {
      if (error.kind !== "cut" && error.kind !== "fault") throw error;
      await backoff.wait();
    }
  }
}

// Resolves when bytes `from` to `to` at the portal are those of the file; throws Refused else.
export async function prove({ file, ...asked }) {
  const found = await held(asked);
  if (!found) return; // nothing of it is left to be mixed with
  const { start, stop, chunk_size: size, digests } = found;
  if (digests.length !== Math.ceil((stop - start) / size)) throw new Refused("changed", "the store lost bytes of it");
  for (const [index, wanted] of digests.entries()) {
    asked.signal?.throwIfAborted();
    const at = start + index * size;
    const bytes = await file.slice(at, Math.min(stop, at + size)).arrayBuffer().catch(() => null);
    if (!bytes) throw new Refused("unreadable", "it changed, moved or cannot be read");
    if ((await digest(bytes)) !== wanted) throw new Refused("changed", CHANGED);
  }
}
