// Handles of what was chosen, kept in the browser so that an upload goes on by itself after a
// reload. One record per dataset; it goes when the dataset is finished, or after thirty days.
const STORE = "sources";
const DAYS_30 = 30 * 86400 * 1000;

function database() {
  return new Promise((resolve, reject) => {
    const asked = indexedDB.open("e31-uploads", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE, { keyPath: "dataset" });
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
}

async function run(mode, act) {
  const opened = await database();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = opened.transaction(STORE, mode);
      const asked = act(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(asked.result);
      transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    opened.close();
  }
}

// A browser that keeps nothing (private windows, no room) is no error: the page asks instead.
const quietly = (promise) => promise.catch(() => undefined);

export const keep = (dataset, handles) => quietly(run("readwrite", (store) => store.put({ dataset, handles, at: Date.now() })));

export const forget = (dataset) => quietly(run("readwrite", (store) => store.delete(dataset)));

export async function kept(dataset) {
  const all = (await quietly(run("readonly", (store) => store.getAll()))) ?? [];
  for (const record of all) if (Date.now() - record.at > DAYS_30) forget(record.dataset);
  return all.find((record) => record.dataset === dataset)?.handles ?? [];
}

// Whether all of these may be read: "granted", "prompt" (a click must ask) or "denied".
export async function permission(handles, ask = false) {
  const answers = [];
  for (const handle of handles) {
    const may = ask ? handle.requestPermission : handle.queryPermission;
    answers.push(may ? await may.call(handle, { mode: "read" }).catch(() => "denied") : "granted");
  }
  return answers.find((answer) => answer === "denied") ?? answers.find((answer) => answer === "prompt") ?? "granted";
}
