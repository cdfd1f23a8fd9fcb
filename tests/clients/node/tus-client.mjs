// One file with tus-js-client; prints a JSON line for each request and one at the end.
// node tus-client.mjs '{"endpoint", "headers", "file", "metadata", "store", "dieAfter", "options"}'
// dieAfter: this process kills itself once that many bytes went out.
import { createReadStream } from "node:fs";
import { PassThrough } from "node:stream";
import * as tus from "tus-js-client";

const order = JSON.parse(process.argv[2]);
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

// A stream of which nobody knows how long it is, where the length is to be deferred.
const file = createReadStream(order.file);
const source = order.options?.uploadLengthDeferred ? file.pipe(new PassThrough()) : file;

const upload = new tus.Upload(source, {
  endpoint: order.endpoint,
  headers: order.headers,
  metadata: order.metadata,
  retryDelays: null,
  ...(order.store ? { urlStorage: new tus.FileUrlStorage(order.store) } : {}),
  ...order.options,
  onBeforeRequest: (request) => {
    const offset = request.getHeader("Upload-Offset");
    say({ method: request.getMethod(), offset: offset === undefined ? null : Number(offset) });
  },
  onProgress: (sent) => {
    if (order.dieAfter && sent >= order.dieAfter) process.kill(process.pid, "SIGKILL");
    if (order.terminateAfter && sent >= order.terminateAfter) {
      order.terminateAfter = 0;
      upload.abort(true).then(() => say({ terminated: upload.url }));
    }
  },
  onError: (error) => {
    say({ error: String(error) });
    process.exitCode = 1;
  },
  onSuccess: () => say({ done: upload.url }),
});

if (order.store) {
  const [previous] = await upload.findPreviousUploads();
  if (previous) upload.resumeFromPreviousUpload(previous);
}
upload.start();
