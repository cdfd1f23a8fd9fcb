// After a reload: what the portal lists as unfinished, and whether what is chosen again is it.
import { takeBack } from "./upload-acts.js";
import { S, TOLD } from "./upload-list.js";
import { inBytes } from "./upload-words.js";

const MOST_NAMED = 10;

// Fills the list with what was begun earlier; how many files and bytes that is.
export async function unfinished(engine, options) {
  const { list, portal, urls } = engine;
  let kept = 0;
  let found = 0;
  for await (const page of portal.unfinished(options)) {
    for (const { path, size, offset, upload, modified } of page) {
      const index = list.add(path, size, modified ?? NaN, S.NEEDED);
      if (index < 0) continue;
      list.flags[index] |= TOLD;
      list.confirm(index, offset);
      if (upload) urls.set(index, upload);
      kept += offset;
      found += 1;
    }
    engine.tell();
  }
  return { found, kept };
}

// Removed files that the portal waits for all the same, by a declaration that reached it late: they
// are removed again. How many there were.
export async function strays(engine, options) {
  const { list, portal } = engine;
  let found = 0;
  for await (const page of portal.unfinished(options)) {
    const again = page.map(({ path }) => list.find(path)).filter((index) => index >= 0 && list.state[index] === S.REMOVED);
    for (const index of again) list.flags[index] |= TOLD;
    takeBack(engine, again);
    found += again.length;
  }
  return found;
}

const when = (time) => new Date(time).toISOString().slice(0, 19).replace("T", " ");

// How a file differs from the one that was begun, in words; "" when nothing known does.
export function difference(list, index, file) {
  if (file.size !== list.size[index]) return `${inBytes(file.size)} now, ${inBytes(list.size[index])} when it was begun`;
  if (Number.isNaN(list.modified[index]) || file.modified === list.modified[index]) return "";
  return `changed ${when(file.modified)} UTC, begun as of ${when(list.modified[index])} UTC`;
}

function named(list, indices) {
  const names = indices.slice(0, MOST_NAMED).map((index) => {
    const note = list.notes.get(index);
    return note ? `${list.path(index)} (${note})` : list.path(index);
  });
  if (indices.length > MOST_NAMED) names.push(`and ${indices.length - MOST_NAMED} more`);
  return names;
}

// [{title, hint, names}] of what was begun and is not in what was chosen, or is another file there.
export function report(list) {
  const missing = [...list.in(S.NEEDED)];
  const differs = [...list.in(S.DIFFERS)];
  return [
    { title: "Not in what you chose", names: named(list, missing) },
    { title: "Changed since it was begun", hint: "“Try again” sends it from its beginning.", names: named(list, differs) },
  ].filter(({ names }) => names.length);
}
