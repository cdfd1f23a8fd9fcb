"""Staging the standard library as a browser does: a manifest in batches, then tus uploads."""

import hashlib
import re
import sysconfig
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import NamedTuple, Protocol

from portal.base.words import in_bytes
from portal.launch.browser import Browser, Unexpected
from portal.launch.report import say

NAME = "Python standard library"
SKIPPED = {"site-packages", "dist-packages", "__pycache__"}
BATCH = 500
PARALLEL = 4
STAGED_S = 300


class Codes(Protocol):
    """Where the code of the dataset is kept between runs."""

    def get(self, noun: str) -> str: ...

    def put(self, noun: str, code: str) -> None: ...


class Source(NamedTuple):
    """A file to stage, by its path in the dataset."""

    path: str
    content: Path

    def entry(self) -> dict[str, object]:
        """As the manifest lists it. Each is far below a chunk, so its digest is plain SHA-256."""
        data = self.content.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        return {"path": self.path, "size": len(data), "digest": digest}


def standard_library() -> list[Source]:
    """Every module's source of the Python that runs this, tests included."""
    root = Path(sysconfig.get_path("stdlib"))
    found = [
        Source(path.relative_to(root).as_posix(), path)
        for path in sorted(root.rglob("*.py"))
        if path.is_file() and not SKIPPED & set(path.relative_to(root).parts)
    ]
    if not found:
        raise Unexpected(f"The standard library's source is not on this machine ({root}).")
    return found


def state_of(browser: Browser, dataset: str) -> str:
    """The dataset's state, with which the title of its page begins; empty when it is gone."""
    answer = browser.get(f"/staging/{dataset}/")
    title = re.search(r"<title>\s*([\w ]+?)\s*[:·]", answer.text)
    return title[1].lower() if answer.status == 200 and title else ""


def create(browser: Browser) -> str:
    path = "/staging/new"
    answer = browser.submit(path, browser.page(path), {"name": NAME}, "name")
    return answer.path.strip("/").split("/")[1]


def batches(sources: list[Source]) -> Iterator[list[Source]]:
    for start in range(0, len(sources), BATCH):
        yield sources[start : start + BATCH]


def declare(browser: Browser, dataset: str, sources: list[Source]) -> list[dict]:
    """The portal's plan for each file: "have" it already, or "send" it where."""
    entries = [source.entry() for source in sources]
    return browser.post_json(f"/staging/{dataset}/manifest", {"files": entries})["files"]


class Sender:
    """Sends files over connections that are kept, one for each thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.own = local()

    def send(self, plan: dict, content: Path) -> int:
        """PATCH what is still missing of a file; the bytes sent. The address is the right."""
        if not hasattr(self.own, "browser"):
            self.own.browser = Browser(self.url)
        data = content.read_bytes()[plan.get("offset", 0) :]
        headers = {
            "Tus-Resumable": "1.0.0",
            "Upload-Offset": str(plan.get("offset", 0)),
            "Content-Type": "application/offset+octet-stream",
        }
        answer = self.own.browser.request("PATCH", plan["upload"], data, headers)
        if answer.status != 204:
            raise Unexpected(f"{plan['path']} was not accepted ({answer.status}): {answer.text}")
        return len(data)


def send_all(browser: Browser, dataset: str, sources: list[Source]) -> tuple[int, int]:
    """Declare and send everything; (files, bytes) that had to move."""
    sender, files, sent = Sender(browser.url), 0, 0
    with ThreadPoolExecutor(PARALLEL) as pool:
        for batch in batches(sources):
            by_path = {source.path: source.content for source in batch}
            plans = [p for p in declare(browser, dataset, batch) if p["state"] == "send"]
            sizes = list(pool.map(lambda plan: sender.send(plan, by_path[plan["path"]]), plans))  # noqa: B023
            files, sent = files + len(sizes), sent + sum(sizes)
    return files, sent


def wait_staged(browser: Browser, dataset: str) -> None:
    deadline = time.monotonic() + STAGED_S
    while (state := state_of(browser, dataset)) != "staged":
        if state in ("failed", "stale", "") or time.monotonic() > deadline:
            raise Unexpected(f"Dataset {dataset} is {state or 'not there'}, not staged.")
        time.sleep(0.3)


def stage(browser: Browser, codes: Codes) -> str:
    """The code of the staged dataset: an earlier run's where it is still there, else a new one."""
    dataset = codes.get("dataset")
    state = state_of(browser, dataset) if dataset else ""
    if state == "staged":
        say(f"dataset {dataset} is staged already: nothing moves")
        return dataset
    started = time.monotonic()
    sources = standard_library()
    if state not in ("declared", "transferring", "on its way"):
        dataset = create(browser)
        codes.put("dataset", dataset)
    say(f"staging {len(sources):,} files of the standard library as dataset {dataset}")
    files, sent = send_all(browser, dataset, sources)
    path = f"/staging/{dataset}/seal"
    browser.submit(path, browser.page(f"/staging/{dataset}/"), {}, "csrfmiddlewaretoken")
    took = time.monotonic() - started
    rate = in_bytes(int(sent / max(took, 0.001)))
    say(f"sent {files:,} files, {in_bytes(sent)} in {took:.1f} s ({rate}/s), {PARALLEL} at a time")
    if files < len(sources):
        say(f"the other {len(sources) - files:,} equal one that is there, and need not be sent")
    wait_staged(browser, dataset)
    say(f"staged: verified in the store after {time.monotonic() - started:.1f} s")
    return dataset
