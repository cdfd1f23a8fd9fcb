// One file to its tus address (https://tus.io/protocols/resumable-upload): pieces with checksums,
// the next piece read and hashed while one is on its way, resumed by asking for the offset.
import { check, meaning } from "./upload-answers.js";
import { base64, canHash, sha256 } from "./upload-digest.js";
import { Backoff, Refused, request } from "./upload-http.js";
import { Pacer } from "./upload-pacer.js";
import { prove } from "./upload-proof.js";

const MIB = 2 ** 20;
const MOST_DAMAGED = 5; // times that one piece may arrive damaged, or the portal may fail at it
const VERSION = { "Tus-Resumable": "1.0.0" };

const pacer = new Pacer(MIB, 32 * MIB, 4 * MIB);
let checks; // whether the portal verifies checksums, asked once

async function hasChecksum(url) {
  const answer = await request("OPTIONS", url, { headers: VERSION });
  const can = (name, word) => (answer.header(name) ?? "").split(",").some((one) => one.trim() === word);
  return can("Tus-Extension", "checksum") && can("Tus-Checksum-Algorithm", "sha256");
}

// The next offset, null when it has to be asked for. Throws Cut or Refused.
function offsetOf(answer) {
  if (meaning("address", answer) === "moved") return null;
  const offset = check("address", answer).header("Upload-Offset");
  return offset === null ? null : Number(offset);
}

// A piece of the file: bytes and their checksum, or the file's own slice where none is sent.
async function read(file, at, checked) {
  const slice = file.slice(at, Math.min(file.size, at + pacer.size));
  if (!checked) return { body: slice, size: slice.size };
  try {
    const body = await slice.arrayBuffer();
    return { body, size: body.byteLength, checksum: `sha256 ${base64(await sha256(body))}` };
  } catch {
    throw new Refused("unreadable", "it changed, moved or cannot be read");
  }
}

class Sender {
  constructor(url, file, { signal, confirmed, trouble, proving }) {
    Object.assign(this, { url, file, signal, confirmed, trouble, proving });
    this.backoff = new Backoff(signal);
    this.ahead = null;
    this.damaged = 0;
    this.known = 0; // bytes that are this file's, or are being compared with it
    this.proof = Promise.resolve();
    this.broken = null;
  }

  // Bytes that came from elsewhere (an earlier attempt, another tab) are compared with the file
  // while the rest is sent; its last piece waits for that, so that no mixed file is ever whole.
  compare(at) {
    const [from, to] = [this.known, at];
    if (to <= from) return;
    this.known = to;
    const { url, file, signal } = this;
    this.proof = Promise.all([this.proof, prove({ url, headers: VERSION, file, from, to, signal })]);
    this.proof.catch((error) => {
      this.broken ??= error;
    });
  }

  async proven() {
    this.proving(true);
    await this.proof;
    this.proving(false);
  }

  async run(offset) {
    let at = offset;
    if (at) this.compare(at);
    while (at === null || at < this.file.size) {
      try {
        if (at === null) at = offsetOf(await request("HEAD", this.url, { headers: VERSION, signal: this.signal }));
        else at = await this.step(at);
        if (at === null) {
          await this.backoff.wait(); // somebody else writes: ask after a moment
          continue;
        }
        this.confirmed(at);
        if (at < this.file.size) this.compare(at);
      } catch (error) {
        at = await this.recover(error);
      }
    }
  }

  async step(at) {
    if (this.broken) throw this.broken;
    checks ??= canHash && (await hasChecksum(this.url));
    const piece = this.ahead?.at === at ? await this.ahead.piece : await read(this.file, at, checks);
    const next = at + piece.size;
    const more = checks && next < this.file.size;
    this.ahead = more ? { at: next, piece: read(this.file, next, checks) } : null;
    this.ahead?.piece.catch(() => null); // heard when its turn comes
    if (next === this.file.size) await this.proven();
    const began = performance.now();
    const got = offsetOf(await this.patch(at, piece));
    if (got === next) this.known = Math.max(this.known, next);
    pacer.took(performance.now() - began, got === next);
    if (got !== null) this.backoff.reset();
    if (got > at) this.damaged = 0;
    return got;
  }

  patch(at, piece) {
    const headers = { ...VERSION, "Upload-Offset": String(at), "Content-Type": "application/offset+octet-stream" };
    if (piece.checksum) headers["Upload-Checksum"] = piece.checksum;
    return request("PATCH", this.url, { headers, body: piece.body, signal: this.signal });
  }

  // What failed may be tried again: null, the offset to ask for. Else it is thrown on.
  async recover(error) {
    this.ahead = null;
    if (error.kind === "damaged" || error.kind === "fault") {
      this.damaged += 1;
      if (this.damaged > MOST_DAMAGED) throw new Refused("stop", error.message);
    } else if (error.kind !== "cut") {
      throw error;
    }
    this.trouble(true);
    await this.backoff.wait();
    return null;
  }
}

// Sends `file` from `offset` on (null: the portal is asked). `confirmed(bytes)` hears each offset
// that the portal acknowledged, `trouble(bool)` whether it is out of reach, `proving(bool)` whether
// only the comparison with what was sent earlier is left.
export async function send({ url, file, offset }, { signal, tell }) {
  await new Sender(url, file, {
    signal,
    confirmed: (at) => tell({ at }),
    trouble: () => tell({ cut: true }),
    proving: (is) => offset !== 0 && tell({ proving: is }),
  }).run(offset);
}

// Give an upload up; what cannot be reached is left to the portal's sweep.
export async function giveUp({ urls }, { signal }) {
  for (const url of urls) {
    signal.throwIfAborted();
    await request("DELETE", url, { headers: VERSION, signal }).catch(() => null);
  }
}
