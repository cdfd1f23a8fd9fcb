// Sending what was declared: large files each to its address, small ones many to a request.
import { Backoff } from "./upload-http.js";
import { S } from "./upload-list.js";
import { Pacer } from "./upload-pacer.js";

const MIB = 2 ** 20;
const MOST_PACKED = 1000;
const MANY_CUTS = 4;
const SILENT = ["aborted", "cut", "no-pack"];
const COMPARING = "comparing it with what was sent before";
const UNREADABLE = "it changed, moved or cannot be read";

const pacer = new Pacer(MIB / 2, 16 * MIB, 2 * MIB);
const backoff = new Backoff();

export function sendLarge(engine, index) {
  const { list, crew, urls } = engine;
  return engine.as("large", async () => {
    const signal = engine.begin([index], S.SENDING);
    const round = list.round[index];
    const known = list.tries[index] || engine.outOfReach ? null : list.confirmed[index];
    const news = ({ at, cut, proving }) => {
      if (proving !== undefined) return list.note(index, proving ? COMPARING : "");
      engine.trouble(Boolean(cut));
      if (at !== undefined && list.confirm(index, at)) engine.back(index, "what had arrived is no longer kept");
      return engine.tell();
    };
    try {
      const order = { url: urls.get(index), file: await engine.open(index), offset: known };
      await crew.run("send", order, { signal, news });
      engine.trouble(false);
      engine.arrived(index, { round });
    } catch (error) {
      engine.failed(index, error);
    }
  });
}

// How many of the waiting small files go into one request.
export function packable({ list, waiting }) {
  let bytes = 0;
  const most = Math.min(MOST_PACKED, waiting.small.length);
  for (let count = 0; count < most; count += 1) {
    bytes += list.size[waiting.small[count]];
    if (count && bytes > pacer.size) return count;
  }
  return most;
}

export function sendPack(engine, batch) {
  return engine.as("pack", async () => {
    const signal = engine.begin(batch, S.SENDING);
    const { files, opened: sent } = await engine.openAll(batch);
    const rounds = sent.map((index) => engine.list.round[index]);
    try {
      const began = performance.now();
      const order = { url: `${engine.portal.urls.pack}?listed`, token: engine.portal.token, files };
      const answers = await engine.crew.run("pack", order, { signal });
      pacer.took(performance.now() - began, true);
      backoff.reset();
      engine.trouble(false);
      answers.forEach((answer, at) => packed(engine, sent[at], rounds[at], answer));
    } catch (error) {
      await unpacked(engine, sent, error);
    }
  });
}

function packed(engine, index, round, { state, message }) {
  if (state === "staged-upload" || state === "have") engine.arrived(index, { had: state === "have", round });
  else if (state === "unreadable") engine.failed(index, { kind: "unreadable", message: UNREADABLE });
  else engine.failed(index, { kind: "again", message: message ?? "The portal did not say what became of it." });
}

// No answer for a whole pack: parts of it may have arrived, so all of it is declared again. Where
// only the sign-in ended, each file goes on to its own address.
async function unpacked(engine, batch, error) {
  if (error.kind === "no-pack") engine.canPack = false;
  if (error.kind === "cut") {
    engine.trouble(true);
    backoff.signal = engine.all.signal;
    await backoff.wait().catch(() => null);
    if (backoff.failures > MANY_CUTS) pacer.size = pacer.least;
  }
  const still = batch.filter((index) => engine.list.state[index] === S.SENDING);
  if (error.kind === "sign-in") engine.ready(still);
  else engine.relist(still);
  if (!SILENT.includes(error.kind)) engine.refused(error);
}
