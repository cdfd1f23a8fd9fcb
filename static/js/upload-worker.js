// Reading, hashing and sending happen here, away from what the person sees and touches.
import { digestOf } from "./upload-digest.js";
import { wake } from "./upload-http.js";
import { pack } from "./upload-pack.js";
import { giveUp, send } from "./upload-tus.js";

// A file that cannot be read has no digest; sending it will say so.
async function hash({ files }, { signal }) {
  const unread = () => {
    signal.throwIfAborted();
    return "";
  };
  return Promise.all(files.map((file) => digestOf(file, { signal }).catch(unread)));
}

const JOBS = { giveUp, hash, pack, send };
const controls = new Map();

function plain(error) {
  return { kind: error.kind ?? (error.name === "AbortError" ? "aborted" : "unreadable"), message: error.message };
}

async function start({ id, job, order }) {
  const control = new AbortController();
  controls.set(id, control);
  try {
    const result = await JOBS[job](order, { signal: control.signal, tell: (news) => postMessage({ id, news }) });
    postMessage({ id, result });
  } catch (error) {
    postMessage({ id, error: plain(error) });
  }
  controls.delete(id);
}

addEventListener("message", ({ data }) => {
  if (data.wake) wake();
  else if (data.abort) controls.get(data.abort)?.abort();
  else start(data);
});
