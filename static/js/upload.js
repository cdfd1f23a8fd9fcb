// The uploader of a dataset's page. Without it the plain form in its place works.
import * as acts from "./upload-acts.js";
import { Chosen, Handle, canKeep, dropped, pick } from "./upload-choose.js";
import { Crew } from "./upload-crew.js";
import { canHash } from "./upload-digest.js";
import { Engine } from "./upload-engine.js";
import { forget, keep, kept, permission } from "./upload-keep.js";
import { List, S } from "./upload-list.js";
import { Portal } from "./upload-portal.js";
import { difference, report, strays, unfinished } from "./upload-resume.js";
import { Rows } from "./upload-rows.js";
import { Status, announce, problem, showAgain, showReport } from "./upload-status.js";
import { Watch } from "./upload-watch.js";
import { files, inBytes } from "./upload-words.js";

const REFRESH_MS = 10000; // the portal's own list below, while files are on their way
const SETTLED_MS = 100; // after an answer; until then its new element hears nothing
const SLEPT_MS = 20000;
const ENDED = ["staged", "failed", "stale", "expiring", "purged"];
const $ = (id) => document.getElementById(id);
const box = $("uploader");

class Page {
  constructor() {
    this.dataset = box.dataset.page;
    this.list = new List();
    this.portal = new Portal(box);
    this.engine = new Engine({ list: this.list, portal: this.portal, crew: new Crew(box.dataset.worker), dataset: this.dataset });
    this.status = new Status(this.engine);
    this.rows = new Rows({ view: $("rows"), space: $("rows-list"), marks: $("marks"), list: this.list, act: (act, index) => this.act(act, index) });
    this.watch = new Watch({ portal: this.portal, list: this.list, wanted: () => this.list.length > 0 && !this.over, moving: () => this.engine.moving });
    this.handles = [];
    this.sentAgain = new Map(); // path -> why
    this.reading = 0; // sources that are being walked
    this.sealed = false;
    this.over = false;
    this.fetching = false; // the part that shows what the portal knows
    this.fetchAgain = false;
  }

  begin() {
    $("plain-upload").hidden = true;
    $("script-upload").hidden = false;
    $("no-digests").hidden = canHash;
    this.choosing();
    this.buttons();
    this.hear();
    this.waking();
    if (Number(box.dataset.missing)) this.resume();
  }

  choosing() {
    for (const kind of ["files", "folder"]) {
      const input = $(`pick-${kind}`);
      $(`choose-${kind}`).addEventListener("click", () => this.ask(kind, input));
      input.addEventListener("change", () => {
        this.take([new Chosen(input.files)]);
        input.value = "";
      });
    }
    const drop = $("drop");
    const over = (is) => () => drop.classList.toggle("drop-over", is);
    drop.addEventListener("dragover", (event) => event.preventDefault());
    drop.addEventListener("dragenter", over(true));
    drop.addEventListener("dragleave", (event) => drop.contains(event.relatedTarget) || over(false)());
    drop.addEventListener("drop", async (event) => {
      event.preventDefault();
      over(false)();
      this.take(await dropped(event.dataTransfer));
    });
  }

  async ask(kind, input) {
    if (!canKeep) {
      input.click();
      return;
    }
    const sources = await pick(kind).catch(() => input.click());
    if (sources) this.take(sources);
  }

  // Lists what the sources hold; files that were begun earlier are compared with what they were.
  async take(sources) {
    const needed = this.list.count(S.NEEDED);
    let found = 0;
    problem("");
    this.reading += 1;
    this.status.listing = true;
    try {
      for (const source of sources) {
        for await (const batch of source.walk()) {
          found += batch.length;
          this.engine.add(source, batch, (index, file) => difference(this.list, index, file));
        }
      }
      if (!found) problem("There is no file in what you chose.");
      else await this.remember(sources);
    } catch (error) {
      problem(`What you chose could not be read to its end: ${error.message}`);
    }
    this.reading -= 1;
    this.status.listing = this.reading > 0;
    if (needed && found) this.compared(needed);
    this.engine.pump();
  }

  compared(needed) {
    const left = this.list.count(S.NEEDED);
    showReport(report(this.list));
    if ($("unfinished")) $("unfinished").hidden = !left;
    if (left === needed) problem("None of the unfinished files is in what you chose. What you chose was added beside them.");
    else announce(`${files(needed - left)} taken up again.`);
  }

  async remember(sources) {
    const fresh = sources.filter((source) => source instanceof Handle).map(({ root }) => root);
    for (const handle of fresh) {
      const same = await Promise.all(this.handles.map((one) => one.isSameEntry(handle)));
      if (!same.includes(true)) this.handles.push(handle);
    }
    if (fresh.length) keep(this.dataset, this.handles);
  }

  async resume() {
    let begun;
    try {
      begun = await unfinished(this.engine);
    } catch (error) {
      problem(`What is unfinished could not be listed: ${error.message}`);
      return;
    }
    const { found, kept: bytes } = begun;
    if (!found) return;
    this.draw();
    this.handles = await kept(this.dataset);
    const names = this.handles.map(({ name }) => `“${name}”`).slice(0, 3).join(", ");
    if (!this.handles.length) return;
    const allowed = await permission(this.handles);
    if (allowed === "granted") {
      announce(`${files(found)} unfinished, ${inBytes(bytes)} kept. Going on with ${names}.`);
      this.goOn();
    } else if (allowed === "prompt") {
      $("go-on").textContent = `Go on with ${names}`;
      $("go-on").hidden = false;
    }
  }

  goOn() {
    $("go-on").hidden = true;
    return this.take(this.handles.map((handle) => new Handle(handle)));
  }

  buttons() {
    const { engine } = this;
    const on = (id, act) => $(id)?.addEventListener("click", act);
    on("pause", () => acts.pauseAll(engine));
    on("resume", () => {
      problem("");
      acts.resumeAll(engine);
    });
    on("retry", () => {
      problem("");
      acts.retryAll(engine);
    });
    on("remove-all", () => {
      $("remove-question").textContent = `Remove ${files(acts.removable(this.list).length)} that have not arrived, and what was kept of them?`;
      $("remove-dialog").showModal();
    });
    $("remove-dialog").addEventListener("close", ({ target }) => target.returnValue === "yes" && acts.removeAll(engine));
    on("go-on", async () => {
      const allowed = await permission(this.handles, true);
      if (allowed === "granted") this.goOn();
      else problem("Your browser does not let this page read it. Choose the same files or folder again.");
    });
    $("filter").addEventListener("change", ({ target }) => {
      this.rows.filter = target.value;
      $("rows").scrollTop = 0;
      this.draw();
    });
  }

  act(act, index) {
    const { engine } = this;
    if (act === "pause") acts.pause(engine, index);
    else if (act === "remove") acts.remove(engine, [index]);
    else acts.goOn(engine, [index]);
  }

  hear() {
    const { engine } = this;
    const on = (name, act) => engine.addEventListener(name, ({ detail }) => act(detail));
    on("change", () => this.draw());
    on("declared", () => this.refresh());
    on("back", (what) => this.wentBack(what));
    on("problem", problem);
    on("stopped", (why) => this.say(why));
    on("closed", (why) => this.closed(why));
    on("sign-in", (is) => announce(is ? "Signed in again. The upload goes on." : "Your sign-in has ended. Sign in in another tab."));
    on("settled", () => this.settled());
    this.watch.addEventListener("progress", ({ detail }) => this.progress(detail));
    $("rows").addEventListener("scroll", () => this.draw());
    addEventListener("resize", () => this.draw());
    addEventListener("beforeunload", (event) => engine.busy && !this.sealed && event.preventDefault());
    setInterval(() => this.draw(), 1000);
    const live = (event) => event.detail.requestConfig?.elt?.id === "dataset-live";
    document.addEventListener("htmx:beforeSend", (event) => {
      if (live(event)) this.fetching = true;
    });
    document.addEventListener("htmx:afterRequest", (event) => live(event) && setTimeout(() => this.fetched(), SETTLED_MS));
    // What was chosen would be gone with this page.
    document.addEventListener("live:signed-out", (event) => {
      if (!this.list.length || this.sealed) return;
      event.preventDefault();
      this.engine.waitForSignIn();
    });
    // The one poll is the uploader's; the list below is refreshed now and then.
    document.addEventListener("htmx:beforeRequest", (event) => {
      const polled = event.target.id === "dataset-live" && event.detail.requestConfig.triggeringEvent?.type !== "refresh";
      if (polled && this.list.length && !this.over) event.preventDefault();
    });
  }

  // After a sleep, on another network, or back in this tab, nothing waits for its turn to retry.
  waking() {
    const wake = () => {
      this.engine.wake();
      this.watch.look();
    };
    for (const name of ["online", "focus"]) addEventListener(name, wake);
    document.addEventListener("visibilitychange", () => document.hidden || wake());
    document.addEventListener("resume", wake); // the browser had frozen this page
    let last = Date.now();
    setInterval(() => {
      const now = Date.now();
      if (now - last > SLEPT_MS && !document.hidden) wake();
      last = now;
    }, 1000);
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      const before = this.status.active;
      this.status.draw();
      this.rows.still = this.status.still;
      if (this.list.length) this.rows.draw();
      if (before && !this.status.active) this.refresh(true); // the portal's own list is shown again
    });
  }

  refresh(now = false, changed = true) {
    if (!now && !changed) return;
    if (!now && performance.now() - (this.refreshed ?? -REFRESH_MS) < REFRESH_MS) return;
    this.refreshed = performance.now();
    // One on its way may be older than what is to be shown, and takes its element away with it.
    if (this.fetching) this.fetchAgain = true;
    else globalThis.htmx?.trigger("#dataset-live", "refresh");
  }

  fetched() {
    this.fetching = false;
    if (!this.fetchAgain) return;
    this.fetchAgain = false;
    this.refresh(true);
  }

  say(text) {
    problem(text);
    announce(text);
    this.draw();
  }

  wentBack({ path, why }) {
    this.status.again = true;
    this.sentAgain.set(path, why);
    showAgain(this.sentAgain);
    announce(`${path} is sent again: ${why}.`);
  }

  progress(found) {
    const before = this.status.known;
    this.status.known = found;
    if (this.engine.outOfReach) this.engine.wake(); // the portal answers again
    this.refresh(Boolean(before) && before.state !== found.state, before?.uploaded_bytes !== found.uploaded_bytes);
    if (found.state === "verifying" || found.state === "staged") this.follow();
    if (this.sealed && ENDED.includes(found.state)) this.leave();
    this.draw();
  }

  // Nothing more can be added: what is shown from here on is the check.
  follow() {
    if (this.sealed) return;
    this.sealed = true;
    for (const id of ["drop", "seal", "unfinished"]) if ($(id)) $(id).hidden = true;
    this.status.closed = this.rows.closed = true;
    forget(this.dataset);
    this.refresh(true);
  }

  leave() {
    this.over = true;
    location.assign(this.dataset);
  }

  closed(why) {
    this.say(`Nothing more was sent: ${why}`);
    acts.pauseAll(this.engine);
    this.watch.look();
  }

  async settled() {
    this.draw();
    if (this.reading || this.sealed || this.sealing) return;
    this.sealing = true;
    const wanted = this.engine.turn.wanted(); // asked now: a moment later another tab no longer waits, it sends
    if ((await this.agreed()) && this.complete() && !(await wanted) && !this.engine.busy) await this.seal();
    this.sealing = false;
  }

  // Whether the portal waits for nothing that was removed here.
  async agreed() {
    if (!this.list.count(S.REMOVED)) return true;
    const found = await strays(this.engine, { trouble: this.engine.trouble }).catch(() => 0); // what comes next says why it is refused
    return !found && !this.engine.busy;
  }

  // Whether all that was listed has arrived; else it is said what has not.
  complete() {
    const { list } = this;
    if (list.count(S.NEEDED, S.DIFFERS, S.PAUSED)) return false;
    const failed = list.count(S.FAILED);
    if (failed) problem(`${files(failed)} could not be sent. Try again, or remove ${failed === 1 ? "it" : "them"}.`);
    else if (!list.files) announce("Nothing is left to send.");
    else if (list.count(S.REFUSED)) announce("Everything that is accepted was uploaded.");
    else return true;
    return false;
  }

  async seal() {
    announce("Everything was uploaded. It is being checked.");
    try {
      await this.portal.seal({ trouble: this.engine.trouble });
      this.follow();
    } catch (error) {
      problem(error.kind === "sign-in" ? "Everything was uploaded. Sign in in another tab, then press Finish." : error.message);
    }
  }
}

if (box) new Page().begin();
