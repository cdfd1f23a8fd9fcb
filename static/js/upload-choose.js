// What a person chose or dropped, as [{file, path}]; folders are walked.
export function chosen(input) {
  return [...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
}

export async function dropped(transfer) {
  // Entries must be taken before the event ends; walking them may come later.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const found = [];
  for (const entry of entries) await walk(entry, "", found);
  return found;
}

async function walk(entry, above, found) {
  const path = above + entry.name;
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    found.push({ file, path });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    // A reader hands out a folder in parts, and an empty part at its end.
    const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!part.length) return;
    for (const child of part) await walk(child, `${path}/`, found);
  }
}
