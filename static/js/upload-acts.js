// What a person does to the list: pause, go on, try again, remove; one file or all of them.
import { S, TOLD } from "./upload-list.js";

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

export function remove(engine, indices) {
  for (const index of indices) {
    stopOne(engine, index, S.REMOVED);
    engine.urls.delete(index);
    engine.digests.delete(index);
  }
  engine.clear();
  takeBack(engine, indices);
  engine.pump();
}

// Removed files that the portal may have are removed there too; nothing is finished before that is
// done. Those of a declaration that is on its way wait for its end: it would list them again.
export function takeBack(engine, indices) {
  const { list, declaring } = engine;
  const there = indices.filter((index) => list.state[index] === S.REMOVED && list.flags[index] & TOLD && !declaring.has(index));
  if (!there.length) return;
  engine.as("remove", async () => {
    for (const index of there) await takeOne(engine, index);
  });
}

async function takeOne(engine, index) {
  const { list, portal } = engine;
  while (list.state[index] === S.REMOVED) {
    try {
      await portal.remove(list.path(index), { trouble: engine.trouble });
      list.flags[index] &= ~TOLD;
      return;
    } catch (error) {
      if (error.kind === "sign-in") {
        engine.refused(error);
        await portal.signedIn();
      } else {
        list.set(index, S.FAILED, `not removed: ${error.message}`);
      }
    }
  }
}

export const removable = (list) => [...list.in(...REMOVABLE)];

// Nothing is left that could be paused, or have no room: what is added next is sent.
export function removeAll(engine) {
  engine.interrupt();
  engine.paused = false;
  engine.stopped = "";
  remove(engine, removable(engine.list));
}
