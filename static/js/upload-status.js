// What the page says of the whole: totals, marks, time left, notices; and aloud only milestones.
import { S } from "./upload-list.js";
import { share, timeLeft } from "./upload-meter.js";
import { files, inBytes, inCount, inWords, ofBytes } from "./upload-words.js";

const MILESTONES = [25, 50, 75];
const SAY_AFTER_MS = 3000; // shorter losses of the connection are nobody's business
const MOST_NAMED = 100;
const MOST_AGAIN = 10;
const $ = (id) => document.getElementById(id);

export const announce = (text) => {
  $("announce").textContent = text;
};

export function problem(text) {
  $("upload-error").textContent = text;
  $("upload-error").hidden = !text;
}

export class Status {
  constructor(engine) {
    this.engine = engine;
    this.highest = 0;
    this.said = new Set();
    this.known = null; // what the portal said last
    this.again = false;
    this.closed = false; // nothing can be added any more
    this.listing = false; // what was chosen is still being read: no share of it is known
    this.active = false; // files are on their way, or about to be
    this.named = {}; // which rows stand in the notices of names
    const { files: all, uploaded, bytes, arrived } = $("uploader").dataset;
    this.begun = { files: Number(uploaded), bytes: Number(arrived) }; // there when the page was made
    this.first = { files: Number(all), bytes: Number(bytes) };
  }

  // Files of the dataset, and their bytes, that arrived before this page and are not in its list.
  outside(list) {
    const known = this.known ?? this.first;
    const clamp = (number, most) => Math.max(0, Math.min(number, most));
    return { files: clamp(known.files - list.files, this.begun.files), bytes: clamp(known.bytes - list.bytes, this.begun.bytes) };
  }

  // Long enough without contact to be worth a word.
  get cutOff() {
    const { outOfReach, going } = this.engine;
    return Boolean(outOfReach && going && Date.now() - outOfReach >= SAY_AFTER_MS);
  }

  // What every file that is on its way waits for, if anything.
  get still() {
    if (this.engine.paused) return "paused";
    return this.cutOff ? "waits for contact" : "";
  }

  draw() {
    const { engine } = this;
    const { list } = engine;
    $("transfer").hidden = !list.length;
    if (!list.length) return;
    this.title(engine, list);
    const outside = this.outside(list);
    const bytes = { part: list.confirmedBytes + outside.bytes, whole: list.bytes + outside.bytes };
    const count = { part: list.there + outside.files, whole: list.files + outside.files };
    const { part, whole } = bytes.whole ? bytes : count;
    this.highest = share(part, whole, this.again || whole !== this.whole ? 0 : this.highest);
    this.again = false;
    this.whole = whole;
    this.totals(list, this.highest, bytes.whole ? ofBytes(part, whole) : `${inCount(part)} of ${files(whole)}`);
    this.marks(list, count);
    this.buttons(engine, list);
    this.notices(engine);
    this.names(list, S.REFUSED, "refused");
    this.names(list, S.FAILED, "failed");
    this.milestone(Math.floor(this.highest * 100), list);
  }

  totals(list, share, done) {
    const percent = list.files && list.there === list.files ? 100 : Math.min(99, Math.floor(share * 100));
    $("transfer-text").textContent = this.listing ? `${files(list.files)} so far, ${inBytes(list.bytes)}; reading what you chose` : `${done}, ${percent} %, ${this.end(list)}`;
    $("transfer-progress").value = list.files && list.there === list.files ? 1 : share;
    const left = this.left(list);
    $("transfer-rate").textContent = list.there === list.files || !this.engine.going || this.cutOff ? "" : rate(left);
  }

  end(list) {
    if (!list.files) return "nothing to send";
    if (list.there === list.files) return "all uploaded";
    if (this.engine.paused) return "paused";
    if (this.engine.stopped) return "stopped";
    if (this.cutOff) return "no contact";
    if (!this.engine.busy) return `${files(list.files - list.there)} left`;
    const left = this.left(list);
    return left ? `about ${inWords(left.p50)}` : "time left not known yet";
  }

  // Also of what was not declared yet, at the rate that the portal saw.
  left(list) {
    return this.engine.moving ? timeLeft(this.known, list.bytes - list.confirmedBytes) : null;
  }

  marks(list, count) {
    const portal = this.known ?? {}; // of the whole dataset, this list being a part of it
    const whole = Math.max(count.whole, portal.files ?? 0);
    $("mark-uploaded").textContent = `${inCount(Math.max(count.part, portal.uploaded ?? 0))} of ${inCount(whole)}`;
    const verified = portal.state === "staged" ? whole : Math.max(portal.verified ?? 0, list.count(S.VERIFIED, S.STAGED));
    $("mark-verified").textContent = `${inCount(verified)} of ${inCount(whole)}`;
    $("mark-staged").textContent = `${inCount(portal.state === "staged" ? whole : 0)} of ${inCount(whole)}`;
  }

  buttons(engine, list) {
    const open = list.files - list.there - list.count(S.FAILED, S.NEEDED, S.DIFFERS, S.PAUSED);
    $("pause").hidden = engine.paused || engine.stopped || !open;
    $("resume").hidden = !(engine.paused || engine.stopped || list.count(S.PAUSED));
    $("retry").hidden = !list.count(S.FAILED, S.DIFFERS);
    $("remove-all").hidden = list.files === list.there;
    this.finishing(engine, list);
  }

  // By hand where the page does not finish by itself.
  finishing(engine, list) {
    const missing = list.count(S.NEEDED) || list.files > list.there;
    $("seal").hidden = this.closed || this.listing || engine.busy || !(list.there || Number($("uploader").dataset.files));
    $("seal-hint").textContent = missing ? "It is checked once every listed file has arrived." : "The files are then read back and checked.";
    $("seal").querySelector("button").classList.toggle("button-primary", !missing);
  }

  title(engine, list) {
    const active = engine.going || this.listing;
    this.active = active;
    $("uploader").classList.toggle("uploader-active", Boolean(list.length));
    $("uploader").classList.toggle("uploader-going", active);
    $("drop-text").textContent = active ? "Drop more files or folders here" : "Drop files or folders here";
    if (this.closed) $("upload-title").textContent = "Uploaded";
    else if (active) $("upload-title").textContent = "Uploading";
    else $("upload-title").textContent = list.files > list.there ? "Go on uploading" : "Add files";
  }

  notices(engine) {
    const gone = engine.outOfReach && engine.going ? Date.now() - engine.outOfReach : 0;
    $("out-of-reach").hidden = gone < SAY_AFTER_MS;
    $("out-of-reach-since").textContent = inWords(gone / 1000);
    $("signed-out").hidden = !engine.signedOut;
    $("elsewhere").hidden = !engine.turn.elsewhere;
  }

  // The names in one state with their reasons in full: a row has room for the beginning only.
  names(list, state, id) {
    const rows = list.count(state) ? [...list.in(state)] : [];
    if (String(rows) === this.named[id]) return;
    this.named[id] = String(rows);
    $(id).hidden = !rows.length;
    const lines = rows.slice(0, MOST_NAMED).map((index) => line(`${list.path(index)}: ${list.notes.get(index)}`));
    if (rows.length > lines.length) lines.push(line(`and ${inCount(rows.length - lines.length)} more`));
    $(`${id}-list`).replaceChildren(...lines);
  }

  milestone(percent, list) {
    if (list.there === list.files) return;
    const reached = MILESTONES.filter((mark) => percent >= mark && !this.said.has(mark)).pop();
    if (reached === undefined) return;
    for (const mark of MILESTONES) if (mark <= reached) this.said.add(mark);
    announce(`${reached} % uploaded`);
  }
}

function rate(left) {
  if (!left) return "Not known yet: too little has moved to say.";
  return `${inBytes(left.rate)} a second, as the portal confirmed it. 5 times in 10 within ${inWords(left.p50)}, 9 times in 10 within ${inWords(left.p90)}.`;
}

export function line(text) {
  const item = document.createElement("li");
  item.textContent = text;
  return item;
}

// The files that went back to their beginning, and why; the last ones where there are many.
export function showAgain(all) {
  const last = [...all].slice(-MOST_AGAIN).map(([path, why]) => `${path}: ${why}.`);
  if (all.size > last.length) last.unshift(`${inCount(all.size - last.length)} more`);
  $("again").hidden = false;
  $("again-list").replaceChildren(...last.map(line));
}

// Lists of names under titles, in a notice of their own.
export function showReport(parts) {
  $("report").hidden = !parts.length;
  $("report").replaceChildren(
    ...parts.flatMap(({ title, hint, names }) => {
      const head = document.createElement("p");
      head.className = "strong";
      head.textContent = title;
      const more = document.createElement("p");
      more.className = "small";
      more.textContent = hint ?? "";
      more.hidden = !hint;
      const list = document.createElement("ul");
      list.className = "small break";
      list.append(...names.map(line));
      return [head, list, more];
    }),
  );
}
