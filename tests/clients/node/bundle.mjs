// The script of the page with Uppy, on standard output.
import { build } from "esbuild";

const { outputFiles } = await build({ entryPoints: ["uppy-page.mjs"], bundle: true, write: false, format: "esm" });
process.stdout.write(outputFiles[0].text);
