"""A folder of many small files in Chromium: the portal's own page against Uppy on @tus/server."""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, Request, sync_playwright

from tests.bench.uploads.figures import Pairs, spread, summary
from tests.bench.uploads.servers import Ours, Peer, running
from tests.bench.uploads.tus_cases import by_turns

FILE_BYTES = 20 * 1024
RUN_S = 1800

type Say = Callable[[str], None]
type Found = tuple[dict[str, float], dict[str, object]]

BEGIN = """
const mark = (event) => { if (event.target.type === "file") window.began ??= performance.now(); };
document.addEventListener("change", mark, true);
"""
DONE = """() => {
  if (document.getElementById("transfer")?.hidden !== false) return 0;
  const seconds = (performance.now() - window.began) / 1000;
  return /all uploaded/.test(document.getElementById("transfer-text").textContent) ? seconds : 0;
}"""


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def make_folder(root: Path, count: int) -> Path:
    """Nested folders with `count` files of 20 KiB."""
    for index in range(count):
        path = root / f"{index // 1000:02}" / f"{index // 100 % 10}" / f"file {index:05}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(index).randbytes(FILE_BYTES))  # noqa: S311
    return root


@contextmanager
def browsing() -> Iterator[BrowserContext]:
    with sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = play.chromium.launch(executable_path=chromium(), args=flags)
        try:
            yield browser.new_context()
        finally:
            browser.close()


def with_uppy(context: BrowserContext, peer: Peer, folder: Path, count: int) -> float:
    """Seconds from the choice of the folder to Uppy's "complete"."""
    page = context.new_page()
    page.goto(peer.url)
    page.wait_for_function("window.ready")
    page.locator("#pick-folder").set_input_files(folder)
    page.wait_for_function("window.result", timeout=RUN_S * 1000)
    result = page.evaluate("window.result")
    page.close()
    if result["ok"] != count:
        raise SystemExit(f"Uppy sent {result['ok']} of {count} files.")
    return result["seconds"]


def with_ours(context: BrowserContext, ours: Ours, dataset: str, folder: Path) -> tuple[float, int]:
    """(seconds from the choice of the folder to "all uploaded", bytes of files that went out)"""
    for name, value in ours.browser.cookies.items():
        context.add_cookies([{"name": name, "value": value, "url": ours.url}])
    page = context.new_page()
    page.add_init_script(BEGIN)
    bodies = count_bodies(page)
    # The page seals the dataset when it is done and loads anew; the mark of the end would be gone.
    page.route("**/seal", lambda route: route.abort())
    page.goto(f"{ours.url}/staging/{dataset}/")
    page.locator("#pick-folder").set_input_files(folder)
    seconds = page.wait_for_function(DONE, timeout=RUN_S * 1000).json_value()
    _close(page)
    return seconds, sum(bodies)


def count_bodies(page: Page) -> list[int]:
    """Sizes of what leaves the page or its workers as bytes of files: measured, not believed."""
    sizes: list[int] = []

    def look(request: Request) -> None:
        if request.method == "PATCH" or request.url.endswith("/pack?listed"):
            sizes.append(int(request.headers.get("content-length", 1)))

    page.on("request", look)
    return sizes


def _close(page: Page) -> None:
    page.close(run_before_unload=False)


def files_arrived(ours: Ours, dataset: str, folder: Path) -> int:
    """How many files of the folder the portal answers "have" for, with their sizes."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    found = 0
    for start in range(0, len(paths), 500):
        files = [
            {"path": f"{folder.name}/{p.relative_to(folder).as_posix()}", "size": p.stat().st_size}
            for p in paths[start : start + 500]
        ]
        answers = ours.browser.post_json(f"/staging/{dataset}/manifest", {"files": files})
        found += sum(answer["state"] == "have" for answer in answers["files"])
    return found


def small_in_chromium(folder: Path, npm: Path, pairs: int, count: int, say: Say) -> Found:
    """Files a second of both, and the seconds until the same folder again is known to be there."""
    source = make_folder(folder / "source", count)
    ours, peer = Ours(folder / "portal"), Peer(folder / "peer", npm)
    rate = Pairs(f"{count} files of 20 KiB in Chromium", "files/s")
    again: list[float] = []
    sent_again = 0
    with running(ours, peer), browsing() as context:
        for number, side in by_turns(ours, peer, pairs):
            if isinstance(side, Peer):
                rate.peer.append(count / with_uppy(context, side, source, count))
            else:
                stir_all(source, number)
                dataset = side.new_dataset()
                rate.ours.append(count / with_ours(context, side, dataset, source)[0])
                seconds, sent = with_ours(context, side, dataset, source)
                again.append(seconds)
                sent_again = max(sent_again, sent)
                arrived = files_arrived(side, dataset, source)
                if arrived != count:
                    raise SystemExit(f"The portal has {arrived} of {count} files.")
            side.forget_bytes()
    say(rate.line())
    say(f"{'the same folder again':<34} {spread(again)} s, {sent_again} bytes sent")
    about: dict[str, object] = {rate.what: rate.as_json(), "same folder again, s": summary(again)}
    about["same folder again, bytes sent"] = sent_again
    return {"small_own_vs_uppy_ratio": rate.ratio, "redrop_s": max(again)}, about


def stir_all(folder: Path, number: int) -> None:
    """Other bytes in every file: a team that has them would be sent nothing."""
    for path in folder.rglob("*.bin"):
        with path.open("r+b") as file:
            file.write(f"{number:08}{time.monotonic_ns():020}".encode())
