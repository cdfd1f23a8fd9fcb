// What a person chooses or drops, as sources: `walk()` tells the files in batches, `open(ref, path)`
// gets one when it is to be read, so that ten thousand files need not be held open.
const BATCH = 500;
const AT_ONCE = 32;
const SLICE_MS = 12; // of reading sizes in one go: the browser asks the disk for each, and waits

// Lets the page draw and hear the person.
const breath = () => globalThis.scheduler?.yield?.() ?? new Promise((resolve) => setTimeout(resolve));

const facts = (file, path, ref) => ({ path, size: file.size, modified: Math.trunc(file.lastModified), ref });

// A browser may show a backslash in a name as one more folder: the name itself is what counts.
function pathOf(file) {
  const path = file.webkitRelativePath || file.name;
  if (path.endsWith(file.name)) return path;
  return [...path.split("/").slice(0, -file.name.split("\\").length), file.name].join("/");
}

// Files of an input, held by the page: they are gone after a reload.
export class Chosen {
  constructor(files) {
    this.files = [...files];
    this.name = this.files[0]?.webkitRelativePath.split("/")[0] ?? "";
  }

  async *walk() {
    let batch = [];
    let began = performance.now();
    for (const [ref, file] of this.files.entries()) {
      batch.push(facts(file, pathOf(file), ref));
      if (performance.now() - began > SLICE_MS) {
        await breath();
        began = performance.now();
      }
      if (batch.length === BATCH) {
        yield batch;
        batch = [];
      }
    }
    if (batch.length) yield batch;
  }

  async open(ref) {
    return this.files[ref];
  }

  // A file that has arrived is not read again.
  close(ref) {
    this.files[ref] = null;
  }
}

// A tree that is read from the disk again whenever a file is needed.
class Tree {
  constructor(root) {
    this.root = root;
    this.name = root.name;
    this.folders = new Map();
  }

  async *walk() {
    if (this.isFile(this.root)) {
      yield [facts(await this.fileOf(this.root), this.name, 0)];
      return;
    }
    for await (const batch of this.below(this.root, `${this.name}/`)) yield batch;
  }

  async *below(folder, above) {
    const children = [];
    for await (const child of this.children(folder)) children.push(child);
    const files = children.filter((child) => this.isFile(child));
    for (let start = 0; start < files.length; start += AT_ONCE) {
      const part = files.slice(start, start + AT_ONCE);
      yield await Promise.all(part.map(async (child) => facts(await this.fileOf(child), above + child.name, 0)));
    }
    for (const child of children) {
      if (!this.isFile(child)) yield* this.below(child, `${above}${child.name}/`);
    }
  }

  close() {}
}

// File System Access: it can be kept in the browser and goes on after a reload.
export class Handle extends Tree {
  isFile(handle) {
    return handle.kind === "file";
  }

  children(folder) {
    return folder.values();
  }

  fileOf(handle) {
    return handle.getFile();
  }

  async folder(parts) {
    const path = parts.join("/");
    if (!parts.length) return this.root;
    if (!this.folders.has(path)) {
      const above = await this.folder(parts.slice(0, -1));
      this.folders.set(path, await above.getDirectoryHandle(parts.at(-1)));
    }
    return this.folders.get(path);
  }

  async open(ref, path) {
    if (this.isFile(this.root)) return this.root.getFile();
    const parts = path.split("/").slice(1);
    const folder = await this.folder(parts.slice(0, -1));
    return (await folder.getFileHandle(parts.at(-1))).getFile();
  }
}

// What was dropped, in browsers without handles for it.
class Entry extends Tree {
  isFile(entry) {
    return entry.isFile;
  }

  async *children(folder) {
    const reader = folder.createReader();
    for (;;) {
      // A reader hands out a folder in parts, and an empty part at its end.
      const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!part.length) return;
      yield* part;
    }
  }

  fileOf(entry) {
    return new Promise((resolve, reject) => entry.file(resolve, reject));
  }

  async open(ref, path) {
    if (this.isFile(this.root)) return this.fileOf(this.root);
    const below = path.slice(path.indexOf("/") + 1);
    const entry = await new Promise((resolve, reject) => this.root.getFile(below, {}, resolve, reject));
    return this.fileOf(entry);
  }
}

// Must be called while the drop is handled: afterwards the browser forgets what was dropped.
export async function dropped(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const taken = items.map((item) => [item.webkitGetAsEntry?.(), item.getAsFileSystemHandle?.().catch(() => null), item.getAsFile()]);
  const sources = [];
  for (const [entry, handle, file] of taken) {
    const kept = await handle;
    if (kept) sources.push(new Handle(kept));
    else if (entry) sources.push(new Entry(entry));
    else if (file) sources.push(new Chosen([file]));
  }
  return sources;
}

export const canKeep = Boolean(globalThis.showDirectoryPicker);

// Sources from the browser's own dialog; null when the person changed their mind.
export async function pick(kind) {
  try {
    if (kind === "folder") return [new Handle(await showDirectoryPicker({ id: "upload" }))];
    const handles = await showOpenFilePicker({ multiple: true, id: "upload" });
    return handles.map((handle) => new Handle(handle));
  } catch (error) {
    if (error.name === "AbortError") return null;
    throw error;
  }
}
