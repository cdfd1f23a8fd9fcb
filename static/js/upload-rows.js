// The list on the page: grouped by folder, and only the rows in view are elements.
import { files, inBytes, ofBytes } from "./upload-words.js";
import { S, arrived } from "./upload-list.js";
import { may } from "./upload-acts.js";

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

// Rows in order: a folder as -1 - its number, then its files.
export function order(list, filter) {
  const wanted = FILTERS[filter];
  const inside = list.folders.map(() => []);
  for (let index = 0; index < list.length; index += 1) if (wanted(list.state[index])) inside[list.folder[index]].push(index);
  const folders = [...inside.keys()].filter((folder) => inside[folder].length);
  folders.sort((one, other) => compare(list.folders[one], list.folders[other]));
  const rows = [];
  for (const folder of folders) {
    const within = inside[folder].sort((one, other) => compare(list.names[one], list.names[other]));
    if (list.folders[folder]) rows.push(-1 - folder);
    for (const index of within) rows.push(index);
  }
  return Int32Array.from(rows);
}

export function wordFor(list, index) {
  const state = list.state[index];
  const note = list.notes.get(index);
  const kept = list.confirmed[index] && !arrived(state) ? `${ofBytes(list.confirmed[index], list.size[index])} kept` : inBytes(list.size[index]);
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
    this.shown = new Map();
    this.height = 0;
    this.closed = false; // nothing can be done to any file any more
    space.addEventListener("click", (event) => this.clicked(event));
  }

  clicked({ target }) {
    const button = target.closest("button[data-act]");
    if (button) this.act(button.dataset.act, button.closest("li").row);
  }

  // Rows come and go with the list; with a filter they also do when a state changed.
  sort() {
    const version = this.filter === "all" ? this.list.version : `${this.filter} ${this.list.version} ${this.list.counts}`;
    if (version === this.version) return;
    this.version = version;
    this.rows = order(this.list, this.filter);
    this.places = null;
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
    set(element.word, wordFor(list, index));
    element.word.title = list.notes.get(index) ?? "";
    element.bar.value = list.size[index] ? list.confirmed[index] / list.size[index] : Number(arrived(state));
    const look = `${state} ${this.closed}`;
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
      .filter((act) => !this.closed && may[act](state))
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
