// Decides what is done next: declare, hash where it helps, pack the small, send the rest. Whatever
// was interrupted is declared again, and the portal's answer says what is left to send.
import { takeBack } from "./upload-acts.js";
import { declare, hash, hashable } from "./upload-declare.js";
import { wake } from "./upload-http.js";
import { HAVE, S, arrived } from "./upload-list.js";
import { packable, sendLarge, sendPack } from "./upload-send.js";
import { Turn } from "./upload-turn.js";

const BATCH = 500; // files declared in one request
const AT_ONCE = 4; // requests that carry bytes
const PACKS_AT_ONCE = 3;
const HASHES_AT_ONCE = 2;
const MOST_TRIES = 4;
const AT_WORK = [S.HASHING, S.SENDING];
const UNREADABLE = "it moved or cannot be read";

const stopped = () => new DOMException("Paused", "AbortError");

export class Engine extends EventTarget {
  constructor({ list, portal, crew, dataset }) {
    super();
    Object.assign(this, { list, portal, crew });
    this.sources = [];
    this.waiting = { listed: [], hash: [], small: [], large: [] };
    this.running = { declare: 0, hash: 0, pack: 0, large: 0, remove: 0 };
    this.declaring = new Set(); // rows of a declaration that is on its way
    this.urls = new Map();
    this.digests = new Map();
    this.shared = new Set(); // sizes that the team has bytes of
    this.controls = new Map();
    this.canPack = true;
    this.paused = false;
    this.stopped = ""; // why nothing more is sent until the person acts
    this.signedOut = false;
    this.outOfReach = 0; // since when, on this page's clock
    this.all = new AbortController();
    this.turn = new Turn(dataset, (waited) => this.taken(waited), () => this.tell());
  }

  tell(kind = "change", detail = null) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }

  // Work is left that this page can do.
  get busy() {
    return [...Object.values(this.waiting), ...Object.values(this.running)].some((one) => one.length ?? one);
  }

  get going() {
    return this.busy && !this.paused && !this.stopped;
  }

  // Bytes are on their way.
  get moving() {
    return this.going && this.turn.mine && !this.outOfReach;
  }

  // Files of one source. `fit(index, file)` says how one that was begun earlier differs, or "".
  add(source, found, fit) {
    let id = this.sources.indexOf(source);
    if (id < 0) id = this.sources.push(source) - 1;
    for (const file of found) {
      let index = this.list.add(file.path, file.size, file.modified);
      if (index < 0) index = this.again(file, id, fit);
      if (index < 0) continue;
      this.list.source[index] = id;
      this.list.ref[index] = file.ref;
      if (this.list.state[index] === S.LISTED) this.waiting.listed.push(index);
    }
    this.pump();
  }

  // A file of a path that is in the list: its row when that is about this file now, else -1.
  again(file, source, fit) {
    const { list } = this;
    const index = list.find(file.path);
    const state = list.state[index];
    const same = file.size === list.size[index] && file.modified === list.modified[index];
    if (state === S.NEEDED) {
      const differs = fit(index, file);
      if (differs) list.replace(index, file.size, file.modified);
      list.modified[index] = file.modified;
      list.set(index, differs ? S.DIFFERS : S.LISTED, differs);
      return index;
    }
    if (arrived(state) ? same : ![S.FAILED, S.REMOVED, S.REFUSED].includes(state)) {
      if (!same && source === list.source[index]) this.tell("problem", `Two files are called ${file.path}; one was left out.`);
      return -1;
    }
    if (list.replace(index, file.size, file.modified)) this.back(index, "it changed on your disk");
    list.set(index, S.LISTED);
    return index;
  }

  // This tab's turn has come. Another may have sent what was planned here: ask again.
  taken(waited) {
    if (waited) this.relist([...this.list.in(S.READY)]);
    this.pump();
  }

  pump() {
    this.tell();
    if (!this.busy) this.settle();
    if (!this.going || !this.turn.take()) return;
    const { waiting, running } = this;
    while (!this.signedOut && !running.declare && !running.remove && waiting.listed.length) this.start(declare, this.some("listed", S.LISTED, BATCH));
    while (running.hash < HASHES_AT_ONCE && waiting.hash.length) this.start(hash, this.some("hash", S.HASHING, hashable(this)));
    while (running.pack + running.large < AT_ONCE && this.next());
  }

  // Starts one request that carries bytes; false when there is none to start.
  next() {
    const { waiting, running } = this;
    if (waiting.small.length && (!this.canPack || this.signedOut)) waiting.large = waiting.large.concat(waiting.small.splice(0));
    const packs = waiting.small.length > 0 && running.pack < PACKS_AT_ONCE;
    if (waiting.large.length && !(packs && running.large)) this.start(sendLarge, ...this.some("large", S.READY, 1));
    else if (packs) this.start(sendPack, this.some("small", S.READY, packable(this)));
    else return false;
    return true;
  }

  // Up to `most` waiting files that are still in that state; one may wait twice, and goes once.
  some(line, state, most) {
    return [...new Set(this.waiting[line].splice(0, most))].filter((index) => this.list.state[index] === state);
  }

  // What was removed waits for nothing.
  clear() {
    for (const [line, rows] of Object.entries(this.waiting)) this.waiting[line] = rows.filter((index) => this.list.state[index] !== S.REMOVED);
  }

  start(act, work) {
    if (work !== undefined && work.length !== 0) act(this, work);
  }

  // Runs `act` as one of `line`, and looks for more to do at its end.
  async as(line, act) {
    this.running[line] += 1;
    try {
      await act();
    } finally {
      this.running[line] -= 1;
      this.pump();
    }
  }

  settle() {
    this.turn.pass();
    if (this.list.length) this.tell("settled");
  }

  trouble = (is) => {
    if (Boolean(this.outOfReach) === is) return;
    this.outOfReach = is ? Date.now() : 0;
    this.tell("reach", !is);
  };

  // A signal that ends with all work or, for one file, with that file's.
  begin(batch, state) {
    const control = new AbortController();
    if (batch.length === 1) this.controls.set(batch[0], control);
    for (const index of batch) if (state !== undefined) this.list.set(index, state);
    return AbortSignal.any([control.signal, this.all.signal]);
  }

  // The file itself, if it still is the one that was declared.
  async open(index) {
    const { list } = this;
    const source = this.sources[list.source[index]];
    const file = await source.open(list.ref[index], list.path(index)).catch(() => null);
    if (!file) throw Object.assign(new Error(UNREADABLE), { kind: "unreadable" });
    const modified = Math.trunc(file.lastModified);
    if (file.size === list.size[index] && modified === list.modified[index]) return file;
    if (list.replace(index, file.size, modified)) this.back(index, "it changed on your disk");
    this.digests.delete(index);
    throw Object.assign(new Error("It changed on your disk again and again."), { kind: "again" });
  }

  // Those of a batch that can be opened; what became of the others is settled.
  async openAll(batch) {
    const files = [];
    const opened = [];
    for (const index of batch) {
      const file = await this.open(index).catch((error) => this.failed(index, error));
      if (!file) continue;
      files.push({ file, path: this.list.path(index) });
      opened.push(index);
    }
    return { files, opened };
  }

  // `round`: of the file that was sent, where another may stand in its row by now.
  arrived(index, { had = false, round = this.list.round[index] } = {}) {
    const { list } = this;
    if (list.state[index] === S.REMOVED || list.round[index] !== round) return; // removed while on its way
    if (had) list.flags[index] |= HAVE;
    list.set(index, S.UPLOADED, had ? "already here" : "");
    for (const facts of [this.urls, this.digests, this.controls]) facts.delete(index);
    this.sources[list.source[index]]?.close(list.ref[index]);
  }

  relist(batch) {
    for (const index of batch) this.list.set(index, S.LISTED);
    this.waiting.listed = batch.concat(this.waiting.listed);
  }

  ready(batch) {
    for (const index of batch) this.list.set(index, S.READY);
    this.waiting.large = this.waiting.large.concat(batch);
  }

  // It starts from its beginning, and the page says so.
  back(index, why) {
    this.tell("back", { path: this.list.path(index), why });
  }

  failed(index, { kind, message }) {
    const { list } = this;
    this.controls.delete(index);
    if (!AT_WORK.includes(list.state[index])) return; // the person decided otherwise meanwhile
    if (kind === "again" || kind === "changed") list.tries[index] += 1;
    if (kind === "changed" && list.tries[index] <= MOST_TRIES) {
      this.startOver(index, message);
      return;
    }
    if (kind === "aborted" || kind === "room" || (kind === "again" && list.tries[index] <= MOST_TRIES)) {
      if (kind === "again") this.digests.delete(index);
      if (kind === "again" && list.confirm(index, 0)) this.back(index, message);
      this.relist([index]);
      if (kind === "room") this.stop(message);
    } else {
      list.set(index, S.FAILED, message);
    }
  }

  // What arrived is of another file: it is given up before any of this one is sent.
  startOver(index, why) {
    const { list, urls, digests } = this;
    const url = urls.get(index);
    urls.delete(index);
    digests.delete(index);
    list.confirm(index, 0);
    list.set(index, S.LISTED);
    this.back(index, why);
    this.as("remove", async () => {
      await this.crew.run("giveUp", { urls: [url] });
      if (list.state[index] === S.LISTED) this.waiting.listed.push(index);
    });
  }

  // The portal refused a request about many files.
  refused(error) {
    if (error.name === "AbortError") return;
    if (error.kind === "sign-in") this.waitForSignIn();
    else if (error.kind === "closed") this.tell("closed", error.message);
    else this.stop(error.message);
  }

  // Addresses that are known go on working meanwhile.
  async waitForSignIn() {
    if (this.signedOut) return;
    this.signedOut = true;
    this.tell("sign-in", false);
    await this.portal.signedIn();
    this.signedOut = false;
    this.tell("sign-in", true);
    this.pump();
  }

  stop(message) {
    this.stopped = message;
    this.interrupt();
    this.tell("stopped", message);
  }

  interrupt() {
    this.all.abort(stopped());
    this.all = new AbortController();
    this.turn.pass();
  }

  wake() {
    this.crew.wake();
    wake();
  }
}
