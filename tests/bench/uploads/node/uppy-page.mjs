// The least page that uploads a folder with Uppy's tus plugin, both with their defaults.
import Uppy from "@uppy/core";
import Tus from "@uppy/tus";

const options = window.uppyOptions ?? {};
const uppy = new Uppy().use(Tus, { endpoint: "/files", ...options.tus });
window.uppy = uppy;

const said = document.getElementById("said");
let began = 0;
uppy.on("complete", (result) => {
  window.result = { ok: result.successful.length, failed: result.failed.length, seconds: (performance.now() - began) / 1000 };
  said.textContent = "complete";
});

document.getElementById("pick-folder").addEventListener("change", (event) => {
  began = performance.now();
  const files = [...event.target.files].map((file) => ({
    name: file.name,
    type: file.type,
    data: file,
    meta: { relativePath: file.webkitRelativePath || file.name, ...options.meta },
  }));
  uppy.addFiles(files);
  uppy.upload();
});
window.ready = true;
