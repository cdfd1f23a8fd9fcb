// Live parts: an element with data-live polls by htmx. This keeps polling out of hidden tabs and
// out of the reader's way, and says milestones aloud.
const live = (event) => event.target instanceof Element && event.target.closest("[data-live]");

function selecting(part) {
  const selection = getSelection();
  return Boolean(selection && !selection.isCollapsed && part.contains(selection.anchorNode));
}

document.addEventListener("htmx:beforeRequest", (event) => {
  const part = live(event);
  if (part && (document.hidden || selecting(part))) event.preventDefault();
});

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  for (const part of document.querySelectorAll("[data-live][hx-get]")) {
    globalThis.htmx?.trigger(part, "refresh");
  }
});

// An answer from another address is the sign-in page: show that instead of swapping it in, unless
// something on this page would be lost by it and says so itself.
document.addEventListener("htmx:beforeSwap", (event) => {
  const part = live(event);
  if (!part) return;
  const answered = new URL(event.detail.xhr.responseURL || location.href);
  const asked = new URL(event.detail.pathInfo.requestPath, location.href);
  if (answered.pathname !== asked.pathname) {
    event.detail.shouldSwap = false;
    if (document.dispatchEvent(new Event("live:signed-out", { cancelable: true }))) location.reload();
    return;
  }
  remember();
});

// What the reader has opened or scrolled stays so across a swap; htmx itself keeps the focus.
let kept = { open: new Map(), left: new Map() };

function remember() {
  kept = { open: new Map(), left: new Map() };
  for (const details of document.querySelectorAll("details[id]")) kept.open.set(details.id, details.open);
  for (const box of document.querySelectorAll(".table-scroll[id]")) kept.left.set(box.id, box.scrollLeft);
}

document.addEventListener("htmx:afterSwap", () => {
  for (const [id, open] of kept.open) {
    const details = document.getElementById(id);
    if (details) details.open = open;
  }
  for (const [id, left] of kept.left) {
    const box = document.getElementById(id);
    if (box) box.scrollLeft = left;
  }
  announce();
});

const milestone = () => document.querySelector("[data-milestone]")?.dataset.milestone ?? "";
let said = milestone();

function announce() {
  const news = milestone();
  if (!news || news === said) return;
  said = news;
  document.getElementById("announce").textContent = news;
}

document.getElementById("error-summary")?.focus();
