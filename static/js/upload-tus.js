// One file to its tus address: pieces, back-off, resume by asking for the offset.
export const PIECE = 16 * 2 ** 20;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 30000;
const MOST_FAILURES = 12;

// The page must act: `kind` says how (again, room, stop).
export class Refused extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

export const aborted = (signal) => new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));

export async function pause(milliseconds, signal) {
  let timer;
  const waited = new Promise((resolve) => {
    timer = setTimeout(resolve, milliseconds);
  });
  await Promise.race([waited, aborted(signal)]);
  clearTimeout(timer);
}

// fetch cannot tell how much has gone out, so this is the older request object.
function request(method, url, { headers = {}, body = null, signal, progress }) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    xhr.open(method, url);
    xhr.setRequestHeader("Tus-Resumable", "1.0.0");
    for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
    if (progress) xhr.upload.onprogress = (event) => progress(event.loaded);
    xhr.onload = () => resolve(xhr);
    xhr.onerror = () => reject(new Error("The connection was cut."));
    xhr.onabort = () => reject(new DOMException("Paused", "AbortError"));
    signal.addEventListener("abort", () => xhr.abort(), { once: true });
    if (signal.aborted) xhr.abort();
    else xhr.send(body);
  });
}

function message(xhr) {
  try {
    return JSON.parse(xhr.responseText).message;
  } catch {
    return `The portal answered ${xhr.status}.`;
  }
}

const offsetIn = (xhr) => {
  const text = xhr.getResponseHeader("Upload-Offset");
  return text === null ? null : Number(text);
};

// What an answer means: the next offset, null to ask for it, or Refused.
function judge(xhr) {
  if (xhr.status === 204 || xhr.status === 200) return offsetIn(xhr);
  if (xhr.status === 409) return null;
  if (xhr.status === 460) throw new Refused("again", "The bytes that arrived were not those of the file.");
  if (xhr.status === 404 || xhr.status === 410) throw new Refused("again", message(xhr));
  if (xhr.status === 507) throw new Refused("room", message(xhr));
  if (xhr.status >= 500 || xhr.status === 408 || xhr.status === 429) return null;
  throw new Refused("stop", message(xhr));
}

// Sends `file` from `offset` on; `moved(bytes)` is told the offset that has gone out so far.
export async function send(url, file, offset, { signal, moved }) {
  let at = offset;
  let failures = 0;
  while (at < file.size) {
    let next = null;
    try {
      next = at === null ? judge(await request("HEAD", url, { signal })) : judge(await piece(url, file, at, { signal, moved }));
    } catch (error) {
      if (error instanceof Refused || error.name === "AbortError") throw error;
    }
    if (next === null || (at !== null && next <= at)) {
      failures += 1;
      if (failures > MOST_FAILURES) throw new Refused("stop", "It could not be sent: the connection was cut again and again, or the file cannot be read.");
      await pause(Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** (failures - 1)) * (0.75 + Math.random() / 2), signal);
      next = null;
    } else if (at !== null) {
      failures = 0;
    }
    if (signal.aborted) throw new DOMException("Paused", "AbortError");
    at = next;
    if (at !== null) moved(at);
    if (at === null) at = await ask(url, signal, moved);
  }
}

async function ask(url, signal, moved) {
  try {
    const at = judge(await request("HEAD", url, { signal }));
    if (at !== null) moved(at);
    return at;
  } catch (error) {
    if (error instanceof Refused || error.name === "AbortError") throw error;
    return null;
  }
}

function piece(url, file, at, { signal, moved }) {
  return request("PATCH", url, {
    headers: { "Upload-Offset": String(at), "Content-Type": "application/offset+octet-stream" },
    body: file.slice(at, Math.min(file.size, at + PIECE)),
    signal,
    progress: (loaded) => moved(at + loaded),
  });
}

export async function terminate(url) {
  const never = new AbortController().signal;
  await request("DELETE", url, { signal: never }).catch(() => null); // the sweep takes what stays
}
