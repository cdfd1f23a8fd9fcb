// Declaring: the portal answers for each file whether it has it, or where its bytes go.
import { canHash } from "./upload-digest.js";
import { HASHED, S } from "./upload-list.js";

const SMALL = 4 * 2 ** 20; // bytes; the most that a pack takes per file

function entry({ list, digests }, index) {
  const digest = digests.get(index);
  return { path: list.path(index), size: list.size[index], modified: list.modified[index], ...(digest ? { digest } : {}) };
}

export function declare(engine, batch) {
  return engine.as("declare", async () => {
    const { list, portal, all } = engine;
    const files = batch.map((index) => entry(engine, index));
    try {
      const answers = await portal.manifest(files, { signal: all.signal, trouble: engine.trouble });
      batch.forEach((index, at) => list.state[index] === S.LISTED && plan(engine, index, answers[at]));
      engine.tell("declared");
    } catch (error) {
      engine.waiting.listed.unshift(...batch);
      engine.refused(error);
    }
  });
}

function plan(engine, index, { state, message, upload, offset, hash_first: hashFirst }) {
  const { list, waiting } = engine;
  if (state === "refused") {
    list.set(index, S.REFUSED, message);
  } else if (state === "have") {
    engine.arrived(index, true);
  } else {
    engine.urls.set(index, upload);
    if (list.confirm(index, offset)) engine.back(index, "what had arrived is no longer kept");
    if (hashFirst && canHash && !(list.flags[index] & HASHED)) {
      list.set(index, S.HASHING);
      waiting.hash.push(index);
    } else {
      list.set(index, S.READY);
      waiting[offset || list.size[index] > SMALL ? "large" : "small"].push(index);
    }
  }
}

// The team has bytes of this size: a digest tells whether they are these.
export function hash(engine, index) {
  const { list, crew, digests } = engine;
  return engine.as("hash", async () => {
    const signal = engine.begin([index]);
    try {
      digests.set(index, await crew.run("hash", { file: await engine.open(index) }, { signal }));
      list.flags[index] |= HASHED;
      if (list.state[index] === S.HASHING) engine.relist([index]);
    } catch (error) {
      engine.failed(index, error);
    }
  });
}
