// The job form works without this. With it, rows come and go without a round trip, the preview
// follows what is typed, code that is too large is named before it is sent, and a second press of
// Submit sends nothing.
const form = document.getElementById("jobform");
document.documentElement.classList.add("js");

const refresh = () => globalThis.htmx?.trigger("#preview", "refresh");

function nextNumber(prefix) {
  const pattern = new RegExp(`^${prefix}-(\\d+)-row$`);
  const numbers = [...form.elements].map((field) => Number(pattern.exec(field.name)?.[1] ?? -1));
  return Math.max(-1, ...numbers) + 1;
}

function addRow(prefix) {
  const template = document.getElementById(`template-${prefix}`);
  const holder = document.createElement("template");
  holder.innerHTML = template.innerHTML.replaceAll("__n__", String(nextNumber(prefix)));
  const row = holder.content.firstElementChild;
  form.querySelector(`[data-rows="${prefix}"]`).append(row);
  globalThis.htmx?.process(row);
  row.querySelector("input:not([type=hidden]), select, textarea")?.focus();
}

function removeRow(button) {
  const rows = button.closest("[data-rows]");
  button.closest("[data-row]").remove();
  form.querySelector(`[data-add="${rows.dataset.rows}"]`)?.focus();
  refresh();
}

form?.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.add) {
    event.preventDefault();
    addRow(button.dataset.add);
  } else if (button && "remove" in button.dataset) {
    event.preventDefault();
    removeRow(button);
  }
});

function codeProblem() {
  const panel = form.querySelector("[data-limit]");
  const files = [...panel.querySelectorAll("input[type=file]")].flatMap((field) => [...field.files]);
  const bytes = files.reduce((sum, file) => sum + file.size, 0);
  const limit = Number(panel.dataset.limit);
  if (bytes <= limit) return "";
  const mib = (size) => (size / 2 ** 20).toFixed(1);
  return `The code is ${mib(bytes)} MiB; at most ${mib(limit)} MiB are accepted.`;
}

function checkCode() {
  const note = document.getElementById("code-note");
  note.textContent = codeProblem();
  note.hidden = !note.textContent;
  return note.hidden;
}

form?.addEventListener("change", (event) => {
  if (event.target.type === "file") checkCode();
});

let sent = false;
form?.addEventListener("submit", (event) => {
  if (sent || !checkCode()) {
    event.preventDefault();
    if (!sent) form.querySelector("[data-limit] input[type=file]")?.focus();
    return;
  }
  sent = true;
});
// Back from the cache of the browser: the form may be sent again.
addEventListener("pageshow", () => {
  sent = false;
});

// A link of the error summary may lead into a closed part.
document.addEventListener("click", (event) => {
  const link = event.target.closest("#error-summary a[href^='#']");
  const field = link && document.getElementById(decodeURIComponent(link.hash.slice(1)));
  if (!field) return;
  for (let part = field.closest("details"); part; part = part.parentElement.closest("details")) {
    part.open = true;
  }
  event.preventDefault();
  field.scrollIntoView({ block: "center" });
  (field.matches("input, select, textarea") ? field : field.querySelector("input, select, textarea") ?? field).focus();
});
