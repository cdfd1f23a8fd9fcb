// @tus/server with its file store and its defaults, and a page with Uppy on the same origin.
// node peer.mjs FOLDER PORT; prints "ready" when it listens.
import { readFileSync } from "node:fs";
import http from "node:http";
import { buildSync } from "esbuild";
import { FileStore } from "@tus/file-store";
import { Server } from "@tus/server";

const [folder, port] = process.argv.slice(2);
const server = new Server({ path: "/files", datastore: new FileStore({ directory: folder }) });
let script = null;

function uppy() {
  script ??= buildSync({ entryPoints: ["uppy-page.mjs"], bundle: true, minify: true, write: false, format: "esm" }).outputFiles[0].text;
  return script;
}

const pages = {
  "/": () => ["text/html; charset=utf-8", readFileSync("uppy-page.html")],
  "/uppy-page.js": () => ["text/javascript", uppy()],
};

http
  .createServer((request, response) => {
    const page = pages[request.url];
    if (!page) return server.handle(request, response);
    const [type, content] = page();
    response.writeHead(200, { "Content-Type": type });
    return response.end(content);
  })
  .listen(Number(port), "127.0.0.1", () => console.log("ready"));
