// Many small files in one request: frames of a length, a header in JSON, and the file's bytes.
import { check } from "./upload-answers.js";
import { canHash, hexDigest } from "./upload-digest.js";
import { request } from "./upload-http.js";

const READERS = 16; // files read at a time

const encoder = new TextEncoder();

async function frame({ file, path }) {
  const bytes = new Uint8Array(await file.arrayBuffer().catch(() => new ArrayBuffer(0)));
  if (bytes.length !== file.size) return null; // it changed or cannot be read
  const digest = canHash ? { digest: await hexDigest(bytes) } : {};
  const header = encoder.encode(JSON.stringify({ path, size: bytes.length, ...digest }));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, header.length);
  return [length, header, bytes];
}

async function frames(files, signal) {
  const made = new Array(files.length);
  let next = 0;
  const reader = async () => {
    while (next < files.length) {
      signal.throwIfAborted();
      const mine = next;
      next += 1;
      made[mine] = await frame(files[mine]);
    }
  };
  await Promise.all(Array.from({ length: READERS }, reader));
  return made;
}

// [{path, state, message}] in the order of `files`; state "unreadable" for what was left out.
export async function pack({ url, token, files }, { signal }) {
  const made = await frames(files, signal);
  const body = new Blob(made.filter(Boolean).flat());
  const answers = new Map();
  if (body.size) {
    const headers = { "Content-Type": "application/x-e31-pack", Accept: "application/json", "X-CSRFToken": token };
    const { body: found } = check("pack", await request("POST", url, { headers, body, signal }));
    for (const one of found.files ?? []) answers.set(one.path, one);
  }
  return files.map(({ path }, index) => (made[index] ? (answers.get(path) ?? { path, state: "unknown" }) : { path, state: "unreadable" }));
}
