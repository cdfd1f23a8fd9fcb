// The uploader of a dataset's page. Without it the plain form in its place works.
import { canHash } from "./upload-digest.js";
import { chosen, dropped } from "./upload-choose.js";
import { Queue } from "./upload-queue.js";

const ROW = 48; // pixels, as in staging.css
const MILESTONES = [25, 50, 75];
const $ = (id) => document.getElementById(id);

const box = $("uploader");

function inBytes(number) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let step = 0;
  let value = number;
  while (value >= 999.95 && step < units.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${step ? value.toFixed(1).replace(/\.0$/, "") : value} ${units[step]}`;
}

function inWords(seconds) {
  if (seconds < 120) return `about ${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 7200) return `about ${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `about ${Math.round(seconds / 3600)} h`;
  return `about ${Math.round(seconds / 86400)} days`;
}

function begin() {
  const token = box.querySelector("[name=csrfmiddlewaretoken]").value;
  const queue = new Queue(box.dataset.manifest, token);
  $("plain-upload").hidden = true;
  $("script-upload").hidden = false;
  listen(queue);
  watch(queue, token);
}

function listen(queue) {
  const take = (files) => {
    if (!files.length) return problem("There is no file in what you chose.");
    problem("");
    $("transfer").hidden = false;
    return queue.add(files);
  };
  for (const kind of ["files", "folder"]) {
    const pick = $(`pick-${kind}`);
    $(`choose-${kind}`).addEventListener("click", () => pick.click());
    pick.addEventListener("change", () => {
      take(chosen(pick));
      pick.value = "";
    });
  }
  const drop = $("drop");
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("drop-over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("drop-over"));
  drop.addEventListener("drop", async (event) => {
    event.preventDefault();
    drop.classList.remove("drop-over");
    try {
      take(await dropped(event.dataTransfer));
    } catch (error) {
      problem(`What was dropped could not be read: ${error.message}`);
    }
  });
  $("pause").addEventListener("click", () => (queue.paused ? queue.resume() : queue.pause()));
  $("retry").addEventListener("click", () => {
    problem("");
    queue.resume();
  });
  window.addEventListener("beforeunload", (event) => {
    if (queue.items.length && !queue.idle) event.preventDefault();
  });
}

function problem(text) {
  $("upload-error").textContent = text;
  $("upload-error").hidden = !text;
}

function announce(text) {
  $("announce").textContent = text;
}

function watch(queue, token) {
  const meter = new Meter();
  let drawn = 0;
  const draw = () => {
    cancelAnimationFrame(drawn);
    drawn = requestAnimationFrame(() => {
      const totals = queue.totals();
      showTotals(queue, totals, meter);
      showRows(queue);
      showRefused(queue);
    });
  };
  queue.addEventListener("change", draw);
  queue.addEventListener("declared", () => globalThis.htmx?.trigger("#dataset-live", "refresh"), { once: true });
  queue.addEventListener("stopped", (event) => {
    problem(event.detail);
    announce(event.detail);
    draw();
  });
  queue.addEventListener("settled", () => settled(queue, token, draw));
  $("rows").addEventListener("scroll", draw);
}

// The rate of the last half minute or so; nothing is said before five seconds have passed.
class Meter {
  constructor() {
    this.rate = null;
    this.samples = [];
    this.said = new Set();
  }

  take(sent) {
    const now = performance.now() / 1000;
    this.samples.push([now, sent]);
    while (this.samples.length > 2 && now - this.samples[0][0] > 30) this.samples.shift();
    const [then, before] = this.samples[0];
    this.rate = now - then > 5 && sent > before ? (sent - before) / (now - then) : null;
  }

  milestone(percent) {
    const reached = MILESTONES.filter((mark) => percent >= mark && !this.said.has(mark)).pop();
    if (reached === undefined) return "";
    for (const mark of MILESTONES) if (mark <= reached) this.said.add(mark);
    return `${reached} % uploaded`;
  }
}

function showTotals(queue, totals, meter) {
  if (queue.paused) meter.samples = [];
  else meter.take(totals.sent);
  const percent = totals.size ? Math.floor((totals.sent * 100) / totals.size) : 100;
  const left = queue.paused ? "paused" : meter.rate ? inWords((totals.size - totals.sent) / meter.rate) : "time left not known yet";
  $("transfer-text").textContent = `${inBytes(totals.sent)} of ${inBytes(totals.size)}, ${percent} %, ${totals.done.toLocaleString("en")} of ${totals.files.toLocaleString("en")} files, ${totals.done === totals.files ? "all uploaded" : left}`;
  $("transfer-progress").value = totals.size ? totals.sent / totals.size : 1;
  $("transfer-hint").textContent = canHash ? "Files that your team already has are not sent again." : "This page has no secure connection, so your browser cannot compute digests: the portal does it alone.";
  $("pause").textContent = queue.paused ? "Resume" : "Pause";
  $("pause").hidden = queue.idle;
  $("retry").hidden = !(totals.failed && !queue.paused);
  const news = meter.milestone(percent);
  if (news) announce(news);
}

const WORDS = { waiting: "waiting", done: "uploaded", refused: "refused", failed: "failed", removed: "removed" };

function wordFor(item) {
  if (item.state === "sending" || (item.state === "waiting" && item.sent)) {
    return `${inBytes(item.sent)} of ${inBytes(item.size)}${item.state === "waiting" ? " kept" : ""}`;
  }
  return item.note && item.state !== "removed" ? `${WORDS[item.state]}: ${item.note}` : `${WORDS[item.state]}, ${inBytes(item.size)}`;
}

// Only rows in view are in the page; the space around them stands for the rest.
function showRows(queue) {
  const view = $("rows");
  const list = $("rows-list");
  const items = queue.items.filter((item) => item.state !== "removed");
  const first = Math.max(0, Math.floor(view.scrollTop / ROW) - 3);
  const last = Math.min(items.length, first + Math.ceil(view.clientHeight / ROW) + 6);
  list.style.paddingTop = `${first * ROW}px`;
  list.style.paddingBottom = `${(items.length - last) * ROW}px`;
  const wanted = items.slice(first, last);
  while (list.children.length > wanted.length) list.lastElementChild.remove();
  while (list.children.length < wanted.length) list.append(newRow(queue));
  wanted.forEach((item, index) => fillRow(list.children[index], item, items.length, first + index));
}

function newRow(queue) {
  const row = document.createElement("li");
  row.className = "rows-line";
  const name = document.createElement("bdi");
  name.className = "rows-name";
  const end = document.createElement("span");
  const word = document.createElement("span");
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "button-link";
  remove.textContent = "Remove";
  remove.addEventListener("click", () => queue.remove(row.item));
  end.append(word, " ", remove);
  const progress = document.createElement("progress");
  row.append(name, end, progress);
  row.parts = { name, word, remove, progress };
  return row;
}

function fillRow(row, item, count, position) {
  row.item = item;
  const { name, word, remove, progress } = row.parts;
  row.setAttribute("aria-setsize", count);
  row.setAttribute("aria-posinset", position + 1);
  name.textContent = item.path;
  name.title = item.path;
  word.textContent = wordFor(item);
  remove.setAttribute("aria-label", `Remove ${item.path}`);
  remove.hidden = item.state === "done" || item.state === "refused";
  progress.max = Math.max(1, item.size);
  progress.value = item.state === "done" ? progress.max : item.sent;
  progress.setAttribute("aria-label", `Uploaded of ${item.path}`);
}

const MOST_REFUSED = 100;
function showRefused(queue) {
  const refused = queue.items.filter((item) => item.state === "refused");
  $("refused").hidden = !refused.length;
  const list = $("refused-list");
  for (const item of refused.slice(list.children.length, MOST_REFUSED)) {
    const line = document.createElement("li");
    line.textContent = `${item.path}: ${item.note}`;
    list.append(line);
  }
}

async function settled(queue, token, draw) {
  const totals = queue.totals();
  draw();
  if (totals.failed) return problem(`${totals.failed} files could not be sent. Try again, or remove them.`);
  if (!totals.files || totals.refused) return announce("Everything that is accepted was uploaded.");
  announce("Everything was uploaded. It is being checked.");
  const answer = await fetch(box.dataset.seal, { method: "POST", headers: { Accept: "application/json", "X-CSRFToken": token } }).catch(() => null);
  if (answer?.ok) return location.assign(box.dataset.page);
  const body = await answer?.json().catch(() => null);
  return problem(body?.message ?? "Everything was uploaded, but the portal could not be reached. Press Finish.");
}

if (box) begin();
