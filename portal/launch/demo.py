"""The main job, as a person would do it in a browser, printing each step as it happens.

Stages the source of the Python standard library of this machine through the upload endpoint,
submits a job of four pieces through the job form, waits for it, and prints its record.
Everything goes over HTTP; only the sign-in links come from the command line.
"""

import argparse
import http.client
import json
import sys
import time
from pathlib import Path

import django
from django.conf import settings
from django.core.management import CommandError

from portal.launch import report, stage
from portal.launch.browser import Browser, Unexpected, errors_on
from portal.launch.follow import follow
from portal.launch.prepare import OPERATOR, SUBMITTER, command

MAIN_JOB = Path(__file__).parent / "mainjob"
JOB_NAME = "Token statistics of the standard library"
PIECES = 4
RECORD_S = 60


class State:
    """What an earlier run left: the codes of the dataset and the job. Lost, it costs a rerun."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            found = json.loads(path.read_text())
            self.codes = found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            self.codes = {}

    def get(self, noun: str) -> str:
        return str(self.codes.get(noun, ""))

    def put(self, noun: str, code: str) -> None:
        self.codes[noun] = code
        self.path.write_text(json.dumps(self.codes))


def signin_link(address: str, path: str = "/") -> str:
    """A fresh one-time link, as `manage.py signin_link` prints it."""
    return command("signin_link", address, next=path)


def sign_in(browser: Browser) -> None:
    """Open the one-time link and press its button, as a person does."""
    path = "/sign-in/" + signin_link(SUBMITTER).rstrip("/").rpartition("/")[2]
    browser.submit(path, browser.page(path), {}, "csrfmiddlewaretoken")
    report.say(f"signed in as {SUBMITTER}")


def finish_command() -> str:
    """finish.py as a command line: bash hands it to Python on standard input."""
    return f"python3 - <<'E31'\n{(MAIN_JOB / 'finish.py').read_text()}E31\n"


def submit(browser: Browser, dataset: str) -> str:
    """Fill in the job form and submit it. Returns the job's code."""
    answer = browser.submit(
        "/jobs/new",
        browser.page("/jobs/new"),
        {
            "name": JOB_NAME,
            "work_kind": "script",
            "language": "python",
            "script": (MAIN_JOB / "work.py").read_text(),
            "finish_command": finish_command(),
            "inputs-0-dataset": dataset,
            "inputs-0-mount": "stdlib",
            "inputs-0-split": "files",
            "gpus": "1",
            "hours": "0.5",
            "shards": str(PIECES),
            "paths-0-pattern": "stats/**",
            "action": "submit",
        },
        "work_kind",
    )
    code = answer.path.strip("/").split("/")[-1]
    if not answer.path.startswith("/jobs/") or code in ("new", "edit"):
        raise Unexpected(f"The job form was not accepted: {errors_on(answer.text)}")
    report.say(f"submitted job {code}: {PIECES} pieces of 1 GPU, and a finish step without GPU")
    return code


def record_of(browser: Browser, job: str, wait_s: float = RECORD_S) -> dict | None:
    """The job's record; it is written in the moment that follows the end."""
    deadline = time.monotonic() + wait_s
    while True:
        answer = browser.get(f"/records/{job}.json")
        if answer.status == 200:
            return answer.json()["record"]
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.5)


def run_main_job(browser: Browser, state: State, *, again: bool) -> bool:
    """Stage, submit, follow, print. Takes up what an earlier run has left unless `again`."""
    job = "" if again else state.get("job")
    if job and browser.get(f"/jobs/{job}/").status == 200:
        report.say(f"job {job} of an earlier run is taken up")
    else:
        dataset = stage.stage(browser, state)
        job = submit(browser, dataset)
        state.put("job", job)
    follow(browser, job)
    record = record_of(browser, job)
    if record is None:
        raise Unexpected(f"Job {job} has ended, but its record is not written.")
    report.print_record(record)
    table = f"/staging/{record['output']['dataset']}/files/finish/stats/all.csv"
    problems = report.problems_of(record, PIECES)
    if not problems:
        report.print_table(browser.get(table))
    for problem in problems:
        report.say(f"NOT AS PROMISED: {problem}")
    return not problems


def print_links(job: str) -> None:
    path = f"/jobs/{job}/" if job else "/"
    report.say("one-time links, each signs in once:")
    report.say(f"  submitter  {signin_link(SUBMITTER, path)}")
    report.say(f"  operator   {signin_link(OPERATOR, '/nodes/')}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m portal.launch.demo", description=__doc__)
    parser.add_argument("--portal", required=True, metavar="URL")
    parser.add_argument("--again", action="store_true", help="a new job; no links, nothing stays")
    options = parser.parse_args()
    django.setup()
    state = State(settings.DATA_DIR / "main-job.json")
    browser = Browser(options.portal)
    try:
        sign_in(browser)
        good = run_main_job(browser, state, again=options.again)
    except (Unexpected, CommandError, OSError, http.client.HTTPException) as error:
        report.say(f"the main job stopped: {error}")
        good = False
    if not options.again:
        print_links(state.get("job"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
