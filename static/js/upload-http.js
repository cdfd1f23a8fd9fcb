// One request that is watched: bytes gone out, silence, and waits that end early on waking up.
const SILENT_MS = 45000; // no byte went out for that long: the connection is dead
const ANSWER_MS = 180000; // everything went out: the portal may be checking
const STALE_MS = 5000; // after a sleep or another network, older silence counts as a cut
const FIRST_WAIT = 500;
const LONGEST_WAIT = 30000;

// Nothing certain is known of what arrived: ask, then go on.
export class Cut extends Error {
  constructor(message = "The connection was cut.") {
    super(message);
    this.kind = "cut";
  }
}

// The portal decided, or the file cannot be sent as it is. `kind` tells what helps: those of
// upload-answers.js, and changed, unreadable.
export class Refused extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

const pauses = new Set();
const open = new Set();

// The machine slept, or the network came back: no more waiting, no trust in old connections.
export function wake() {
  for (const end of pauses) end(true);
  for (const request of open) if (performance.now() - request.moved > STALE_MS) request.cut();
}

// Resolves to true when it was ended early by wake().
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const done = (woken) => {
      clearTimeout(timer);
      pauses.delete(done);
      signal?.removeEventListener("abort", stop);
      resolve(woken);
    };
    const stop = () => {
      reject(signal.reason);
      done(false);
    };
    const timer = setTimeout(done, milliseconds, false);
    pauses.add(done);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}

// Exponential waits with jitter; being woken starts them from the beginning.
export class Backoff {
  constructor(signal) {
    this.signal = signal;
    this.failures = 0;
  }

  async wait() {
    const longest = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.failures);
    this.failures += 1;
    const woken = await pause(longest * (0.5 + Math.random() / 2), this.signal);
    if (woken) this.failures = Math.min(this.failures, 1);
  }

  reset() {
    this.failures = 0;
  }
}

// {status, header(name), body} whatever the status; rejects with Cut or AbortError.
export function request(method, url, { headers = {}, body = null, signal, sent } = {}) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    const watched = { moved: performance.now(), limit: SILENT_MS, cut: () => end(reject, new Cut()) };
    const watch = setInterval(() => performance.now() - watched.moved > watched.limit && watched.cut(), STALE_MS);
    const stop = () => end(reject, new DOMException("Paused", "AbortError"));
    const end = (settle, value) => {
      clearInterval(watch);
      open.delete(watched);
      signal?.removeEventListener("abort", stop);
      settle(value);
      if (xhr.readyState !== 4) xhr.abort();
    };
    xhr.open(method, url);
    for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
    xhr.upload.onprogress = (event) => {
      watched.moved = performance.now();
      sent?.(event.loaded);
    };
    xhr.upload.onload = () => {
      watched.limit = ANSWER_MS;
    };
    xhr.onload = () => end(resolve, answerOf(xhr));
    xhr.onerror = () => end(reject, new Cut());
    signal?.addEventListener("abort", stop, { once: true });
    open.add(watched);
    if (signal?.aborted) stop();
    else xhr.send(body);
  });
}

function answerOf(xhr) {
  let body = {};
  try {
    body = JSON.parse(xhr.responseText);
  } catch {
    // a proxy's page, or nothing
  }
  return {
    status: xhr.status,
    header: (name) => xhr.getResponseHeader(name),
    body,
    message: body.message ?? `The portal answered ${xhr.status}.`,
  };
}
