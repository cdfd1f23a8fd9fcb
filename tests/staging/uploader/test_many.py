"""Ten thousand files in nested folders: what the page holds, and that it stays usable."""

from tests.staging.uploader.conftest import write_tree

COUNT = 10_000
LONG_TASKS = """
window.long = [];
new PerformanceObserver((seen) => {
  for (const task of seen.getEntries()) window.long.push(task.duration);
}).observe({ type: "longtask", buffered: true });
"""


def heap(session) -> int:
    """Bytes of JavaScript objects that are alive."""
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"]


def test_ten_thousand_files(server, person, dataset, tmp_path, record_property):
    sizes = {f"{n // 1000:02}/{n // 100 % 10}/file {n:05}.bin": 500 + n % 700 for n in range(COUNT)}
    source = write_tree(tmp_path / "src", sizes)
    person.context.add_init_script(LONG_TASKS)
    tab = person.open(dataset)
    session = tab.page.context.new_cdp_session(tab.page)
    before = heap(session)
    tab.drop(source)
    tab.page.set_default_timeout(180_000)
    tab.sealed()
    assert tab.page.inner_text("#mark-uploaded") == "10,000 of 10,000"
    assert (heap(session) - before) / COUNT < 1024  # bytes of memory per file
    assert len(server.digests(dataset)) == COUNT
    assert tab.page.locator("#rows-list li").count() < 60
    tab.page.locator("#rows").focus()
    tab.page.keyboard.press("End")
    tab.row("file 09999.bin").wait_for()
    assert tab.page.locator("#rows-list li").count() < 60
    assert len(person.sent) < 200
    record_property("bytes_per_file", (heap(session) - before) / COUNT)
    record_property("long_tasks_ms", tab.page.evaluate("window.long"))
    assert person.complaints == []
