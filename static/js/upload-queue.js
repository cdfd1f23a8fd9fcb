// The list of files on their way: declared in batches, sent a few at a time.
import { canHash, digestOf } from "./upload-digest.js";
import { Refused, pause, send, terminate } from "./upload-tus.js";

const BATCH = 500;
const PARALLEL = 4;
const LARGEST_TO_HASH = 2 ** 30;
const MOST_TRIES = 6;

// An item's state: waiting, sending, done, refused, failed, removed.
export class Queue extends EventTarget {
  constructor(manifestUrl, token) {
    super();
    this.manifestUrl = manifestUrl;
    this.token = token;
    this.items = [];
    this.byPath = new Map();
    this.undeclared = [];
    this.ready = [];
    this.running = 0;
    this.paused = false;
    this.declaring = false;
    this.control = new AbortController();
  }

  add(files) {
    for (const { file, path } of files) {
      const known = this.byPath.get(path);
      if (known && known.state !== "failed" && known.state !== "removed") continue;
      const item = { file, path, size: file.size, sent: 0, state: "waiting", note: "", url: "", tries: 0 };
      if (known) this.items[this.items.indexOf(known)] = item;
      else this.items.push(item);
      this.byPath.set(path, item);
      this.undeclared.push(item);
    }
    this.pump();
  }

  totals() {
    const sum = { files: 0, done: 0, size: 0, sent: 0, refused: 0, failed: 0 };
    for (const item of this.items) {
      if (item.state === "refused") sum.refused += 1;
      if (item.state === "refused" || item.state === "removed") continue;
      sum.files += 1;
      sum.size += item.size;
      sum.sent += item.state === "done" ? item.size : Math.min(item.sent, item.size);
      if (item.state === "done") sum.done += 1;
      if (item.state === "failed") sum.failed += 1;
    }
    return sum;
  }

  get idle() {
    return !this.paused && !this.declaring && !this.running && !this.undeclared.length && !this.ready.length;
  }

  pause() {
    this.paused = true;
    this.control.abort();
    this.tell();
  }

  resume() {
    this.paused = false;
    this.control = new AbortController();
    for (const item of this.items) {
      if (item.state !== "failed") continue;
      item.state = "waiting";
      item.tries = 0;
      this.undeclared.push(item);
    }
    this.pump();
  }

  async remove(item) {
    item.state = "removed";
    this.undeclared = this.undeclared.filter((one) => one !== item);
    this.ready = this.ready.filter((one) => one !== item);
    item.control?.abort();
    if (item.url) await terminate(item.url);
    this.pump();
  }

  tell() {
    this.dispatchEvent(new Event("change"));
  }

  pump() {
    this.tell();
    if (this.paused) return;
    if (!this.declaring && this.undeclared.length && this.ready.length < BATCH) this.declare();
    while (this.running < PARALLEL && this.ready.length) this.start(this.ready.shift());
    if (this.idle && this.items.length) this.dispatchEvent(new Event("settled"));
  }

  async declare() {
    this.declaring = true;
    const batch = this.undeclared.splice(0, BATCH);
    try {
      const answers = await this.manifest(batch);
      await this.hashWhereItHelps(batch, answers);
      batch.forEach((item, index) => this.plan(item, answers[index]));
      this.dispatchEvent(new Event("declared"));
    } catch (error) {
      this.undeclared.unshift(...batch.filter((item) => item.state === "waiting"));
      if (error.name !== "AbortError") this.stop(error.message);
    } finally {
      this.declaring = false;
    }
    this.pump();
  }

  stop(message) {
    this.paused = true;
    this.control.abort();
    this.dispatchEvent(new CustomEvent("stopped", { detail: message }));
  }

  async manifest(items) {
    const files = items.map((item) => ({
      path: item.path,
      size: item.size,
      modified: Math.trunc(item.file.lastModified),
      ...(item.digest ? { digest: item.digest } : {}),
    }));
    for (let failures = 0; ; failures += 1) {
      const answer = await fetch(this.manifestUrl, {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": this.token },
        body: JSON.stringify({ files }),
        signal: this.control.signal,
      }).catch((error) => {
        if (error.name === "AbortError") throw error;
        return null;
      });
      if (answer?.ok) return (await answer.json()).files;
      if (answer?.status === 401) throw new Error("Your sign-in has ended. Sign in in another tab, then try again here.");
      if (answer && answer.status < 500) throw new Error((await answer.json().catch(() => ({}))).message ?? `The portal answered ${answer.status}.`);
      if (answer?.status === 507) throw new Error((await answer.json()).message);
      if (failures === MOST_TRIES) throw new Error("The portal cannot be reached. Nothing is lost; try again.");
      await pause(500 * 2 ** failures, this.control.signal);
      this.control.signal.throwIfAborted();
    }
  }

  // Where the team has bytes of this size, a digest tells whether they are the same.
  async hashWhereItHelps(batch, answers) {
    if (!canHash) return;
    const found = batch.filter((item, index) => answers[index].hash_first && item.size <= LARGEST_TO_HASH && !item.hashed);
    for (const item of found) {
      item.hashed = true;
      item.digest = await digestOf(item.file).catch(() => "");
      this.control.signal.throwIfAborted();
    }
    if (!found.length) return;
    const again = await this.manifest(found);
    found.forEach((item, index) => {
      answers[batch.indexOf(item)] = again[index];
    });
  }

  plan(item, answer) {
    if (item.state === "removed") return;
    if (answer.state === "refused") {
      item.state = "refused";
      item.note = answer.message;
    } else if (answer.state === "have") {
      item.state = "done";
      item.note = "already here";
    } else {
      item.url = answer.upload;
      item.sent = item.kept = answer.offset;
      this.ready.push(item);
    }
  }

  async start(item) {
    this.running += 1;
    item.state = "sending";
    item.control = new AbortController();
    const signal = AbortSignal.any([item.control.signal, this.control.signal]);
    try {
      await send(item.url, item.file, item.sent && item.kept !== item.sent ? null : item.sent, {
        signal,
        moved: (sent) => {
          item.sent = sent;
          this.tell();
        },
      });
      item.state = "done";
    } catch (error) {
      this.failed(item, error);
    } finally {
      this.running -= 1;
    }
    this.pump();
  }

  failed(item, error) {
    if (item.state === "removed") return;
    item.state = "waiting";
    if (error.name === "AbortError") {
      this.undeclared.unshift(item);
    } else if (error instanceof Refused && error.kind === "room") {
      this.undeclared.unshift(item);
      this.stop(error.message);
    } else if (error instanceof Refused && error.kind === "again" && item.tries < MOST_TRIES) {
      item.tries += 1;
      item.digest = "";
      this.undeclared.unshift(item);
    } else {
      item.state = "failed";
      item.note = error.message;
    }
  }
}
