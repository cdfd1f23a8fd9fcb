// The list on the page: grouped by folder, and only the rows in view are elements.
import { files, inBytes, ofBytes } from "./upload-words.js";
import { S, arrived } from "./upload-list.js";
import { may } from "./upload-acts.js";

const SHORT_MS = 4;
const ABOVE = 4; // rows made beyond the edge of the view
const PROBLEMS = [S.REFUSED, S.FAILED, S.DIFFERS];
const FILTERS = {
  all: (state) => state !== S.REMOVED,
  waiting: (state) => state !== S.REMOVED && state !== S.REFUSED && !arrived(state),
  problems: (state) => PROBLEMS.includes(state),
};
const ACTS = { pause: "Pause", resume: "Resume", retry: "Try again", remove: "Remove" };
const WORDS = { [S.LISTED]: "waiting", [S.HASHING]: "reading, to see whether it is here", [S.READY]: "waiting", [S.PAUSED]: "paused", [S.NEEDED]: "unfinished", [S.REFUSED]: "not accepted", [S.FAILED]: "failed", [S.DIFFERS]: "another file" };

const compare = (one, other) => (one < other ? -1 : Number(one > other));

// Rows in order: a folder as -1 - its number, then its files. `kept` has the files of folders that
// were put in order earlier and have not changed.
export function order(list, filter, kept = new Map()) {
  const wanted = FILTERS[filter];
  const byName = (one, other) => compare(list.names[one], list.names[other]);
  const folders = [];
  let count = 0;
  for (const [folder, path] of list.folders.entries()) {
    if (!kept.has(folder)) kept.set(folder, list.members[folder].filter((index) => wanted(list.state[index])).sort(byName));
    const { length } = kept.get(folder);
    if (length) folders.push(folder);
    count += length && length + Number(path !== "");
  }
  folders.sort((one, other) => compare(list.folders[one], list.folders[other]));
  const rows = new Int32Array(count);
  let place = 0;
  for (const folder of folders) {
    if (list.folders[folder]) {
      rows[place] = -1 - folder;
      place += 1;
    }
    rows.set(kept.get(folder), place);
    place += kept.get(folder).length;
  }
  return rows;
}

// `still` is what every file that is on its way waits for: "paused", "waits for contact".
export function wordFor(list, index, still = "") {
  const state = list.state[index];
  const note = list.notes.get(index);
  const kept = list.confirmed[index] && !arrived(state) ? `${ofBytes(list.confirmed[index], list.size[index])} kept` : inBytes(list.size[index]);
  if (still && may.pause(state)) return `${still}, ${kept}`;
  if (state === S.SENDING && note) return note;
  if (state === S.SENDING) return list.confirmed[index] ? ofBytes(list.confirmed[index], list.size[index]) : `sending, ${inBytes(list.size[index])}`;
  const word = WORDS[state] ?? "";
  return [word, note && word ? `: ${note}` : (note ?? ""), note && word ? "" : `${word || note ? ", " : ""}${kept}`].join("");
}

export class Rows {
  constructor({ view, space, marks, list, act }) {
    Object.assign(this, { view, space, marks, list, act });
    this.filter = "all";
    this.rows = new Int32Array();
    this.version = -1;
    this.sortAgain = 0;
    this.kept = new Map(); // the files of each folder, in order
    this.shown = new Map();
    this.height = 0;
    this.closed = false; // nothing can be done to any file any more
    this.still = "";
    space.addEventListener("click", (event) => this.clicked(event));
  }

  clicked({ target }) {
    const button = target.closest("button[data-act]");
    if (button) this.act(button.dataset.act, button.closest("li").row);
  }

  // Rows come and go with the list; with a filter they also do when a state changed.
  sort() {
    const version = this.filter === "all" ? this.list.version : `${this.filter} ${this.list.version} ${this.list.counts}`;
    const began = performance.now();
    if (version === this.version || (began < this.sortAgain && this.filter === this.sorted)) return;
    this.version = version;
    this.sorted = this.filter;
    this.rows = this.filter === "all" ? this.orderAll() : order(this.list, this.filter);
    this.places = null;
    // A long list that still grows takes a tenth of the time at most; the next draw comes anyway.
    const took = performance.now() - began;
    this.sortAgain = took > SHORT_MS ? began + 10 * took : 0;
  }

  orderAll() {
    const { list, kept } = this;
    for (const folder of list.touched) kept.delete(folder);
    list.touched.clear();
    return order(list, "all", kept);
  }

  draw() {
    this.sort();
    const height = this.rowHeight();
    const first = Math.max(0, Math.floor(this.view.scrollTop / height) - ABOVE);
    const last = Math.min(this.rows.length, first + Math.ceil(this.view.clientHeight / height) + 2 * ABOVE);
    this.space.style.height = `${this.rows.length * height}px`;
    const wanted = new Map();
    for (let place = first; place < last; place += 1) wanted.set(this.rows[place], place);
    this.keepFocus(wanted);
    this.place(wanted, height);
  }

  // A row that holds the focus stays in the page, wherever it is scrolled to.
  keepFocus(wanted) {
    const row = document.activeElement?.closest?.("li")?.row;
    if (row === undefined || wanted.has(row) || !this.shown.has(row)) return;
    const place = this.rows.indexOf(row);
    if (place >= 0) wanted.set(row, place);
    else this.view.focus();
  }

  place(wanted, height) {
    for (const [row, element] of this.shown) {
      if (wanted.has(row)) continue;
      element.remove();
      this.shown.delete(row);
    }
    const inOrder = [...wanted].sort((one, other) => one[1] - other[1]);
    let next = this.space.firstElementChild;
    for (const [row, place] of inOrder) {
      const element = this.shown.get(row) ?? this.make(row);
      if (element === next) next = next.nextElementSibling;
      else this.space.insertBefore(element, next);
      element.style.top = `${place * height}px`;
      element.setAttribute("aria-setsize", this.rows.length);
      element.setAttribute("aria-posinset", place + 1);
      if (row < 0) this.fillFolder(element, -1 - row);
      else this.fill(element, row);
    }
  }

  rowHeight() {
    const shown = this.space.firstElementChild;
    if (shown) this.height = shown.offsetHeight;
    return this.height || 52;
  }

  make(row) {
    const element = document.createElement("li");
    element.className = row < 0 ? "rows-line rows-folder" : "rows-line";
    element.row = row;
    const part = (tag, name) => {
      const made = element.appendChild(document.createElement(tag));
      made.className = name;
      return made;
    };
    element.name = part("bdi", "rows-name");
    element.word = part("span", "rows-word");
    if (row >= 0) {
      element.mark = part("span", "rows-mark");
      element.acts = part("span", "rows-acts");
      element.bar = part("progress", "rows-bar");
      element.bar.max = 1;
    }
    this.shown.set(row, element);
    return element;
  }

  fillFolder(element, folder) {
    const path = this.list.folders[folder];
    const below = this.below(folder);
    set(element.name, path);
    set(element.word, files(below));
  }

  below(folder) {
    if (!this.places) {
      this.places = new Map();
      let here = -1;
      for (const row of this.rows) {
        if (row < 0) here = row;
        else this.places.set(here, (this.places.get(here) ?? 0) + 1);
      }
    }
    return this.places.get(-1 - folder) ?? 0;
  }

  fill(element, index) {
    const { list } = this;
    const state = list.state[index];
    set(element.name, list.names[index]);
    set(element.word, wordFor(list, index, this.still));
    element.word.title = list.notes.get(index) ?? "";
    element.bar.value = list.size[index] ? list.confirmed[index] / list.size[index] : Number(arrived(state));
    const look = `${state} ${this.closed} ${this.still}`;
    if (element.look === look) return;
    element.look = look;
    element.title = list.path(index);
    element.classList.toggle("rows-bad", PROBLEMS.includes(state));
    element.bar.hidden = arrived(state) || PROBLEMS.includes(state);
    element.bar.setAttribute("aria-label", `Uploaded of ${list.names[index]}`);
    element.mark.replaceChildren(...this.markOf(state));
    this.fillActs(element, list.names[index], state);
  }

  markOf(state) {
    const name = { [S.UPLOADED]: "uploaded", [S.VERIFIED]: "verified", [S.STAGED]: "staged" }[state];
    const mark = name && this.marks.content.querySelector(`[data-mark=${name}]`);
    return mark ? [mark.cloneNode(true)] : [];
  }

  fillActs(element, name, state) {
    const focused = element.acts.contains(document.activeElement);
    const buttons = Object.keys(ACTS)
      .filter((act) => !this.closed && may[act](state) && !(act === "pause" && this.still === "paused"))
      .map((act) => {
        const button = document.createElement("button");
        Object.assign(button, { type: "button", className: "button-link", textContent: ACTS[act] });
        button.dataset.act = act;
        button.setAttribute("aria-label", `${ACTS[act]}: ${name}`);
        return button;
      });
    element.acts.replaceChildren(...buttons);
    if (focused) (buttons[0] ?? this.view).focus();
  }
}

const set = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
