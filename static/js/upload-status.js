// What the page says of the whole: totals, marks, time left, notices; and aloud only milestones.
import { S } from "./upload-list.js";
import { share, timeLeft } from "./upload-meter.js";
import { files, inBytes, inCount, inWords, ofBytes } from "./upload-words.js";

const MILESTONES = [25, 50, 75];
const SAY_AFTER_MS = 3000; // shorter losses of the connection are nobody's business
const MOST_REFUSED = 100;
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
  }

  draw() {
    const { engine } = this;
    const { list } = engine;
    $("transfer").hidden = !list.length;
    if (!list.length) return;
    this.title(engine, list);
    const [part, whole] = list.bytes ? [list.confirmedBytes, list.bytes] : [list.there, list.files];
    this.highest = share(part, whole, this.again || whole !== this.whole ? 0 : this.highest);
    this.again = false;
    this.whole = whole;
    this.totals(list, this.highest);
    this.marks(list);
    this.buttons(engine, list);
    this.notices(engine);
    this.refused(list);
    this.milestone(Math.floor(this.highest * 100), list);
  }

  totals(list, share) {
    const percent = list.files && list.there === list.files ? 100 : Math.min(99, Math.floor(share * 100));
    const done = list.bytes ? ofBytes(list.confirmedBytes, list.bytes) : `${inCount(list.there)} of ${files(list.files)}`;
    $("transfer-text").textContent = this.listing ? `${files(list.files)} so far, ${inBytes(list.bytes)}; reading what you chose` : `${done}, ${percent} %, ${this.end(list)}`;
    $("transfer-progress").value = list.files && list.there === list.files ? 1 : share;
    const left = this.left(list);
    $("transfer-rate").textContent = list.there === list.files || !this.engine.going ? "" : rate(left);
  }

  end(list) {
    if (!list.files) return "nothing to send";
    if (list.there === list.files) return "all uploaded";
    if (this.engine.paused) return "paused";
    if (this.engine.stopped) return "stopped";
    if (!this.engine.busy) return `${files(list.files - list.there)} left`;
    const left = this.left(list);
    return left ? `about ${inWords(left.p50)}` : "time left not known yet";
  }

  // Also of what was not declared yet, at the rate that the portal saw.
  left(list) {
    return this.engine.moving ? timeLeft(this.known, list.bytes - list.confirmedBytes) : null;
  }

  marks(list) {
    const portal = this.known ?? {}; // of the whole dataset, this list being a part of it
    const whole = Math.max(list.files, portal.files ?? 0);
    $("mark-uploaded").textContent = `${inCount(Math.max(list.there, portal.uploaded ?? 0))} of ${inCount(whole)}`;
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
    $("uploader").classList.toggle("uploader-active", Boolean(list.length));
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

  refused(list) {
    const count = list.count(S.REFUSED);
    if (count === this.refusedCount) return;
    this.refusedCount = count;
    $("refused").hidden = !count;
    const lines = [];
    for (const index of list.in(S.REFUSED)) {
      if (lines.length === MOST_REFUSED) break;
      lines.push(line(`${list.path(index)}: ${list.notes.get(index)}`));
    }
    if (count > lines.length) lines.push(line(`and ${inCount(count - lines.length)} more`));
    $("refused-list").replaceChildren(...lines);
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
