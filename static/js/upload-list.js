// Everything that was chosen, in columns: a few dozen bytes per file beside its name.
const STATES = ["LISTED", "HASHING", "READY", "SENDING", "UPLOADED", "VERIFIED", "STAGED", "REFUSED", "FAILED", "REMOVED", "PAUSED", "NEEDED", "DIFFERS"];
// LISTED: to be declared. READY: may be sent. NEEDED: begun earlier, its file is to be chosen
// again. DIFFERS: chosen again, and another file than the one that was begun.
export const S = Object.freeze(Object.fromEntries(STATES.map((name, value) => [name, value])));

export const HAVE = 1; // the team had these bytes, nothing was sent
export const HASHED = 2; // its digest was asked for once
export const TOLD = 4; // the portal may have it listed: it is taken back when it is removed

const COLUMNS = { size: Float64Array, modified: Float64Array, confirmed: Float64Array, folder: Uint32Array, source: Uint16Array, ref: Uint32Array, state: Uint8Array, flags: Uint8Array, tries: Uint8Array, round: Uint32Array };
// `round` counts how often the row became about another file, or none: what was asked of the portal
// in an earlier round is not answered about the file that stands there now.
const OUT = new Set([S.REFUSED, S.REMOVED]);
const THERE = new Set([S.UPLOADED, S.VERIFIED, S.STAGED]);
export const arrived = (state) => THERE.has(state);

export class List {
  constructor() {
    this.length = 0;
    this.names = [];
    this.folders = [];
    this.folderIds = new Map();
    this.members = []; // of each folder
    this.touched = new Set(); // folders whose rows changed since somebody looked
    this.places = new Map();
    this.notes = new Map();
    this.counts = new Uint32Array(STATES.length);
    this.bytes = 0; // of all files but those refused or removed
    this.confirmedBytes = 0;
    this.version = 0; // of which rows there are; a view sorts again when it changed
    for (const [name, Kind] of Object.entries(COLUMNS)) this[name] = new Kind(256);
  }

  grow() {
    for (const [name, Kind] of Object.entries(COLUMNS)) {
      const wider = new Kind(this[name].length * 2);
      wider.set(this[name]);
      this[name] = wider;
    }
  }

  key(path) {
    const cut = path.lastIndexOf("/") + 1;
    const folder = path.slice(0, cut);
    let id = this.folderIds.get(folder);
    if (id === undefined) {
      id = this.folders.push(folder) - 1;
      this.folderIds.set(folder, id);
      this.members.push([]);
    }
    return [id, path.slice(cut)];
  }

  find(path) {
    const id = this.folderIds.get(path.slice(0, path.lastIndexOf("/") + 1));
    return id === undefined ? -1 : (this.places.get(`${id}/${path.slice(path.lastIndexOf("/") + 1)}`) ?? -1);
  }

  path(index) {
    return this.folders[this.folder[index]] + this.names[index];
  }

  // A new row; -1 when there is one of that path already.
  add(path, size, modified, state = S.LISTED) {
    const [folder, name] = this.key(path);
    const key = `${folder}/${name}`;
    if (this.places.has(key)) return -1;
    if (this.length === this.size.length) this.grow();
    const index = this.length;
    this.length += 1;
    this.names.push(name);
    this.places.set(key, index);
    this.folder[index] = folder;
    this.members[folder].push(index);
    this.touched.add(folder);
    this.size[index] = size;
    this.modified[index] = modified;
    this.state[index] = state;
    this.counts[state] += 1;
    if (!OUT.has(state)) this.bytes += size;
    this.version += 1;
    return index;
  }

  note(index, text) {
    if (text) this.notes.set(index, text);
    else this.notes.delete(index);
  }

  set(index, state, note = "") {
    const before = this.state[index];
    this.note(index, note);
    if (THERE.has(state) && !THERE.has(before)) this.confirm(index, this.size[index]);
    if (state === S.REMOVED && before !== state) this.round[index] += 1;
    this.counts[before] -= 1;
    this.counts[state] += 1;
    this.state[index] = state;
    if (OUT.has(state) === OUT.has(before)) return;
    const sign = OUT.has(state) ? -1 : 1;
    this.bytes += sign * this.size[index];
    this.confirmedBytes += sign * this.confirmed[index];
    this.touched.add(this.folder[index]);
    this.version += 1;
  }

  // Bytes that the portal acknowledged; true when that is less than before.
  confirm(index, bytes) {
    const before = this.confirmed[index];
    this.confirmed[index] = Math.min(bytes, this.size[index]);
    if (!OUT.has(this.state[index])) this.confirmedBytes += this.confirmed[index] - before;
    return this.confirmed[index] < before;
  }

  // Another file stands under this path: true when bytes that had been confirmed are void.
  replace(index, size, modified) {
    const back = this.confirm(index, 0);
    if (!OUT.has(this.state[index])) this.bytes += size - this.size[index];
    this.size[index] = size;
    this.modified[index] = modified;
    this.tries[index] = 0;
    this.flags[index] &= TOLD;
    this.round[index] += 1;
    return back;
  }

  count(...states) {
    return states.reduce((sum, state) => sum + this.counts[state], 0);
  }

  get files() {
    return this.length - this.count(S.REFUSED, S.REMOVED);
  }

  get there() {
    return this.count(S.UPLOADED, S.VERIFIED, S.STAGED);
  }

  *in(...states) {
    for (let index = 0; index < this.length; index += 1) if (states.includes(this.state[index])) yield index;
  }
}
