// Times stand on the page in UTC; hovering one shows the reader's own time.
const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

function explain(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.valueOf())) time.title = `${local.format(at)} (your time)`;
  }
}

explain(document);
document.addEventListener("htmx:afterSwap", () => explain(document));
