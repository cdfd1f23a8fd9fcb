// Declaring: the portal answers for each file whether it has it, or where its bytes go.
import { takeBack } from "./upload-acts.js";
import { canHash } from "./upload-digest.js";
import { HASHED, S, TOLD } from "./upload-list.js";

const MOST_HASHED = 500;
const HASHED_BYTES = 16 * 2 ** 20;
const SMALL = 4 * 2 ** 20; // bytes; the most that a pack takes per file

function entry({ list, digests }, index) {
  const digest = digests.get(index);
  return { path: list.path(index), size: list.size[index], modified: list.modified[index], ...(digest ? { digest } : {}) };
}

// Whether the portal said of another file that the team has bytes of this size.
function worthHashing({ list, shared }, index) {
  return canHash && shared.has(list.size[index]) && !(list.flags[index] & HASHED);
}

function toHash({ list, waiting }, index) {
  list.set(index, S.HASHING);
  waiting.hash.push(index);
}

export function declare(engine, listed) {
  const batch = listed.filter((index) => !worthHashing(engine, index));
  for (const index of listed) if (worthHashing(engine, index)) toHash(engine, index);
  if (!batch.length) return null;
  return engine.as("declare", async () => {
    const { list, portal, all } = engine;
    const rounds = batch.map((index) => list.round[index]);
    const told = new Told(engine, batch);
    try {
      const files = batch.map((index) => entry(engine, index));
      const answers = await portal.manifest(files, { signal: all.signal, trouble: told.trouble });
      batch.forEach((index, at) => {
        if (answers[at].state === "refused") told.not(index);
        if (list.state[index] === S.LISTED && list.round[index] === rounds[at]) plan(engine, index, answers[at]);
      });
      engine.tell("declared");
    } catch (error) {
      if (error.kind) for (const index of batch) told.not(index); // the portal refused all of it
      engine.waiting.listed.unshift(...batch.filter((index) => list.state[index] === S.LISTED));
      engine.refused(error);
    } finally {
      engine.declaring.clear();
      takeBack(engine, batch); // what was removed meanwhile
    }
  });
}

// Which files the portal may know by a declaration: all of it from its first byte on, and those it
// refused only where it may know them from before, or from a try whose answer was lost.
class Told {
  constructor(engine, batch) {
    const { list } = engine;
    Object.assign(this, { engine, list, lost: false });
    this.before = new Set(batch.filter((index) => list.flags[index] & TOLD));
    engine.declaring = new Set(batch);
    for (const index of batch) list.flags[index] |= TOLD;
  }

  trouble = (is) => {
    this.lost ||= is;
    this.engine.trouble(is);
  };

  not(index) {
    if (!this.lost && !this.before.has(index)) this.list.flags[index] &= ~TOLD;
  }
}

function plan(engine, index, { state, message, upload, offset, hash_first: hashFirst }) {
  const { list, waiting } = engine;
  if (state === "refused") {
    list.set(index, S.REFUSED, message);
  } else if (state === "have") {
    engine.arrived(index, { had: true });
  } else {
    engine.urls.set(index, upload);
    if (list.confirm(index, offset)) engine.back(index, "what had arrived is no longer kept");
    if (hashFirst) engine.shared.add(list.size[index]);
    if (worthHashing(engine, index)) {
      toHash(engine, index);
    } else {
      list.set(index, S.READY);
      waiting[offset || list.size[index] > SMALL ? "large" : "small"].push(index);
    }
  }
}

// How many of the waiting files are hashed in one go.
export function hashable({ list, waiting }) {
  let bytes = 0;
  const most = Math.min(MOST_HASHED, waiting.hash.length);
  for (let count = 0; count < most; count += 1) {
    bytes += list.size[waiting.hash[count]];
    if (count && bytes > HASHED_BYTES) return count;
  }
  return most;
}

// The team has bytes of these sizes: a digest tells whether they are the same.
export function hash(engine, batch) {
  const { list, crew, digests } = engine;
  return engine.as("hash", async () => {
    const signal = engine.begin(batch);
    const { files, opened } = await engine.openAll(batch);
    try {
      const found = await crew.run("hash", { files: files.map(({ file }) => file) }, { signal });
      opened.forEach((index, at) => found[at] && digests.set(index, found[at]));
      const still = opened.filter((index) => list.state[index] === S.HASHING);
      for (const index of still) list.flags[index] |= HASHED;
      engine.relist(still);
    } catch (error) {
      for (const index of opened) engine.failed(index, error);
    }
  });
}
