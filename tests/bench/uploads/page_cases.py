"""A hundred thousand files dropped on the page: its memory for each, and how smooth it stays."""

from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page

from tests.bench.uploads.browser_cases import RUN_S, Found, Say, browsing
from tests.bench.uploads.servers import Ours, running

FILE_BYTES = 64
LONG_TASKS = """
window.tasks = [];
new PerformanceObserver((seen) => {
  for (const { duration } of seen.getEntries()) window.tasks.push(Math.round(duration));
}).observe({ type: "longtask", buffered: true });
"""

BUSY = """() => setTimeout(() => {
  const began = performance.now();
  while (performance.now() - began < 250);
})"""


def make_tree(root: Path, count: int) -> Path:
    """Nested folders of a hundred files; the names are as long as people's."""
    for index in range(count):
        path = root / f"series {index // 5000:03}" / f"run {index // 100 % 50:02}"
        if index % 100 == 0:
            path.mkdir(parents=True)
        name = f"reading {index:06} of the survey.csv"
        (path / name).write_bytes(f"{index:064}".encode())
    return root


def memory(session: CDPSession) -> int:
    """Bytes that the page's scripts keep, buffers among them, once what is dead was collected."""
    session.send("HeapProfiler.collectGarbage")
    usage: dict[str, Any] = session.send("Runtime.getHeapUsage")
    return sum(int(usage.get(name, 0)) for name in ("usedSize", "backingStorageSize"))


def drop(page: Page, session: CDPSession, source: Path) -> None:
    """As a person does: the browser itself reads the folder."""
    box = page.locator("#drop").bounding_box()
    assert box is not None
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(source)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **at, "data": data})


def many_in_the_page(folder: Path, count: int, say: Say) -> Found:
    """Bytes of memory for each file (the most of: all listed, all uploaded), longest task in ms."""
    source = make_tree(folder / "source", count)
    ours = Ours(folder / "portal")
    with running(ours), browsing() as context:
        for name, value in ours.browser.cookies.items():
            context.add_cookies([{"name": name, "value": value, "url": ours.url}])
        page = context.new_page()
        page.set_default_timeout(RUN_S * 1000)
        page.add_init_script(LONG_TASKS)
        page.route("**/seal", lambda route: route.abort())  # the page would load anew
        page.goto(f"{ours.url}/staging/{ours.new_dataset()}/")
        session = context.new_cdp_session(page)
        before = memory(session)
        drop(page, session, source)
        page.wait_for_function(
            "(count) => !document.getElementById('transfer').hidden && "
            "document.getElementById('mark-uploaded').textContent.endsWith(count) && "
            "!/so far/.test(document.getElementById('transfer-text').textContent)",
            arg=f" of {count:,}",
        )
        # Collecting what is dead on demand is a long task of the measurement, not of the page.
        tasks = page.evaluate("window.tasks")
        listed = memory(session) - before
        page.evaluate("window.tasks = []")
        page.get_by_text("all uploaded").wait_for()
        tasks += page.evaluate("window.tasks")
        done = memory(session) - before
        page.evaluate(BUSY)
        page.wait_for_function("() => window.tasks.some((task) => task >= 200)")  # it is noticed
        page.close(run_before_unload=False)
    each = max(listed, done) / count
    longest = max(tasks, default=0)
    say(
        f"{f'{count} files in the page':<34} {each:.0f} bytes each; longest task {longest} ms, "
        f"{sum(task > 100 for task in tasks)} above 100 ms"
    )
    about: dict[str, object] = {
        "page": {
            "files": count,
            "bytes each when listed": round(listed / count),
            "bytes each when uploaded": round(done / count),
            "longest tasks, ms": sorted(tasks, reverse=True)[:10],
        }
    }
    return {"page_bytes_per_file": each, "page_longest_task_ms": float(longest)}, about
