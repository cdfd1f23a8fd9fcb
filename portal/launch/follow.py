"""Following a job on its page: the live part is asked for until the job has ended."""

import html
import http.client
import re
import time
from typing import NamedTuple

from portal.launch.browser import Browser, Unexpected
from portal.launch.report import say

POLL_S = 0.4
MOST_S = 20 * 60
STEP = re.compile(
    r'<li class="step step-(?P<mark>\w+)[^>]*>.*?step-name">(?P<name>[^<]+)<(?P<rest>.*?)</li>',
    re.DOTALL,
)
LENGTH = re.compile(r'step-length">([^<]+)<')
SENTENCE = re.compile(r'class="step-sentence[^"]*">(.*?)</p>', re.DOTALL)
TITLE = re.compile(r"<title>([^<]*)</title>")
# What a step is called once it is over.
PAST = {
    "Submit": "submitted",
    "Staging": "inputs staged",
    "Waiting": "queued and placed; the data is on the node",
    "Rent": "rented",
    "Run": "run",
    "Output": "output returned",
    "Release": "released",
}

OF_ANOTHER = " (this is the finish step now, or a piece that is tried again)"


class Step(NamedTuple):
    name: str
    mark: str  # done, current, failed, todo
    length: str


class View(NamedTuple):
    """The live part of the job page, read."""

    title: str
    steps: list[Step]
    sentence: str

    @property
    def ended(self) -> bool:
        """The page of an ended job no longer polls; its title begins with the outcome."""
        word = self.title.partition(":")[0].strip().lower()
        return word in ("succeeded", "failed", "cancelled", "timed out", "lost")


def read(page: str) -> View:
    title = TITLE.search(page)
    sentence = SENTENCE.search(page)
    plain = re.sub(r"<[^>]+>", "", sentence[1]) if sentence else ""
    steps = []
    for match in STEP.finditer(page):
        length = LENGTH.search(match["rest"])
        steps.append(Step(match["name"].strip(), match["mark"], length[1] if length else ""))
    return View(
        html.unescape(title[1]) if title else "", steps, " ".join(html.unescape(plain).split())
    )


def look(browser: Browser, job: str) -> View | None:
    """The job's page now; None while the portal does not answer (it may be starting again)."""
    try:
        answer = browser.get(f"/jobs/{job}/live")
    except (OSError, http.client.HTTPException):
        browser.connection.close()
        return None
    if answer.status in (502, 503):
        return None
    if answer.status != 200:
        raise Unexpected(f"/jobs/{job}/live answered {answer.status}.")
    return read(answer.text)


def tell(view: View, told: set[tuple[str, str]]) -> None:
    """Print what is new: steps that are over, the one that is now, its sentence."""
    for step in view.steps:
        key = (step.name, step.mark)
        if key in told or step.mark == "todo":
            continue
        told.add(key)
        if step.mark == "done":
            length = f" ({step.length})" if step.length else ""
            say(f"{PAST.get(step.name, step.name)}{length}")
    if view.sentence and ("", view.sentence) not in told:
        whose = OF_ANOTHER if _goes_back(view.sentence, told) else ""
        told.add(("", view.sentence))
        say(f"  {view.sentence}{whose}")


def _goes_back(sentence: str, told: set[tuple[str, str]]) -> bool:
    """Whether it is about an earlier step than what was said before."""
    return -1 < _rank(sentence) < max((_rank(said) for name, said in told if not name), default=-1)


def _rank(sentence: str) -> int:
    """The place of the step that the sentence begins with; -1 where it begins with none."""
    name = sentence.partition(".")[0]
    return list(PAST).index(name) if name in PAST else -1


def follow(browser: Browser, job: str) -> None:
    """Print each step of a job until it has ended. Raises Unexpected when it takes too long."""
    told: set[tuple[str, str]] = {("Submit", "done")}
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        view = look(browser, job)
        if view:
            tell(view, told)
            if view.ended:
                say(f"ended: {view.title}")
                return
        time.sleep(POLL_S)
    raise Unexpected(f"Job {job} had not ended after {MOST_S // 60} minutes.")
