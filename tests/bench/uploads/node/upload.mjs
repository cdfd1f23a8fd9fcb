// Uploads files with tus-js-client, several at a time, and prints one JSON line.
// On standard input: {"endpoint", "headers", "metadata", "files": [paths], "chunk", "parallel"}
import { createReadStream, readFileSync, statSync } from "node:fs";
import path from "node:path";
import * as tus from "tus-js-client";

const order = JSON.parse(readFileSync(0, "utf8"));
const waiting = [...order.files];

function send(file) {
  return new Promise((resolve, reject) => {
    const upload = new tus.Upload(createReadStream(file), {
      endpoint: order.endpoint,
      headers: order.headers,
      chunkSize: order.chunk ?? Infinity,
      uploadSize: statSync(file).size,
      metadata: { ...order.metadata, filename: path.basename(file) },
      retryDelays: null,
      onError: reject,
      onSuccess: resolve,
    });
    upload.start();
  });
}

async function lane() {
  while (waiting.length) await send(waiting.shift());
}

const began = performance.now();
await Promise.all(Array.from({ length: order.parallel ?? 1 }, lane));
console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000 }));
