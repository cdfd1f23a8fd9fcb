// What a person does to the list: pause, go on, try again, remove; one file or all of them.
import { S, arrived } from "./upload-list.js";

const ON_ITS_WAY = [S.LISTED, S.HASHING, S.READY, S.SENDING];
const REMOVABLE = [...ON_ITS_WAY, S.PAUSED, S.FAILED, S.NEEDED, S.DIFFERS];

const paused = () => new DOMException("Paused", "AbortError");

export const may = {
  pause: (state) => ON_ITS_WAY.includes(state),
  resume: (state) => state === S.PAUSED,
  retry: (state) => state === S.FAILED || state === S.DIFFERS,
  remove: (state) => REMOVABLE.includes(state) || state === S.UPLOADED,
};

function stopOne(engine, index, state) {
  engine.list.set(index, state);
  engine.controls.get(index)?.abort(paused());
  engine.controls.delete(index);
}

export function pause(engine, index) {
  stopOne(engine, index, S.PAUSED);
  engine.pump();
}

// Also after a failure: whatever is in the list is declared again.
export function goOn(engine, indices) {
  for (const index of indices) engine.list.tries[index] = 0;
  engine.relist(indices);
  engine.stopped = "";
  engine.pump();
}

export function pauseAll(engine) {
  engine.paused = true;
  engine.interrupt();
  engine.tell();
}

export function resumeAll(engine) {
  engine.paused = false;
  engine.stopped = "";
  goOn(engine, [...engine.list.in(S.PAUSED)]);
}

export function retryAll(engine) {
  goOn(engine, [...engine.list.in(S.FAILED, S.DIFFERS)]);
}

// Bytes that arrived are removed at the portal too; nothing is finished before that is done.
export function remove(engine, indices) {
  const { list, portal, urls } = engine;
  const begun = indices.filter((index) => urls.has(index)).map((index) => urls.get(index));
  const there = indices.filter((index) => arrived(list.state[index])).map((index) => list.path(index));
  for (const index of indices) {
    stopOne(engine, index, S.REMOVED);
    urls.delete(index);
    engine.digests.delete(index);
  }
  engine.as("remove", async () => {
    for (const path of there) await portal.remove(path);
    await engine.crew.run("giveUp", { urls: begun });
  });
}

export const removable = (list) => [...list.in(...REMOVABLE)];

export function removeAll(engine) {
  engine.interrupt();
  remove(engine, removable(engine.list));
}
