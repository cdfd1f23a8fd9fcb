"""What the main job reads and says: forms, the job page, the record; and its two scripts."""

import csv
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from portal.launch import browser, demo, follow, report, stage
from portal.launch.browser import Form, Unexpected, read_form

FORM = """
<form action="/out"><input name="csrfmiddlewaretoken" value="first"></form>
<form method="post" enctype="multipart/form-data">
  <input type="hidden" name="csrfmiddlewaretoken" value="tok">
  <input name="name" value="a &amp; b"><input name="gpus" value="1">
  <input type="radio" name="kind" value="script" checked>
  <input type="radio" name="kind" value="code">
  <input type="checkbox" name="keep" checked><input type="checkbox" name="drop">
  <select name="language">
    <option value="bash">B</option><option value="python" selected>P</option></select>
  <select name="after"><option value="keep">K</option><option value="delete">D</option></select>
  <textarea name="script">
print("&lt;")
</textarea>
  <input type="file" name="code"><input name="old" value="x" disabled>
  <button name="action" value="preview">Preview</button>
  <template><input name="vars-__n__-name" value=""></template>
</form>
"""


def test_a_form_is_read_as_a_browser_sends_it():
    form = read_form(FORM, "name")
    assert form.multipart
    assert form.fields == {
        "csrfmiddlewaretoken": "tok",
        "name": "a & b",
        "gpus": "1",
        "kind": "script",
        "keep": "on",
        "language": "python",
        "after": "keep",
        "script": 'print("<")\n',
    }


def test_a_form_that_is_not_there():
    with pytest.raises(Unexpected, match="no form with the field 'nothing'"):
        read_form(FORM, "nothing")


def test_both_encodings():
    assert Form({"a": "b c", "d": "é"}, False).encoded()[0] == b"a=b+c&d=%C3%A9"
    body, kind = Form({"a": "line\nline"}, True).encoded()
    assert b'name="a"\r\n\r\nline\nline\r\n' in body
    assert kind.startswith("multipart/form-data; boundary=")


def test_the_errors_of_a_page_are_plain_text():
    page = '<p>x</p><div class="errors"><h2>Not sent</h2><a href="#n">Give a &amp; name.</a></div>'
    assert browser.errors_on(page) == "Not sent Give a & name."


LIVE = """<title>Rented: Count · E31</title>
<ol class="steps">
<li class="step step-done"><span class="step-name">Submit</span></li>
<li class="step step-done"><span class="step-name">Waiting</span>
<span class="step-length">0:00:05</span></li>
<li class="step step-current step-metered" aria-current="step">
<span class="step-name">Run</span></li>
<li class="step step-todo"><span class="step-name">Output</span></li></ol>
<p class="step-sentence"><strong>Run.</strong> The work
 is running &amp; well.</p>"""


def test_the_job_page_is_read():
    view = follow.read(LIVE)
    assert view.title == "Rented: Count · E31"
    assert not view.ended
    assert view.sentence == "Run. The work is running & well."
    assert [(s.name, s.mark, s.length) for s in view.steps] == [
        ("Submit", "done", ""),
        ("Waiting", "done", "0:00:05"),
        ("Run", "current", ""),
        ("Output", "todo", ""),
    ]


@pytest.mark.parametrize("word", ["Succeeded", "Failed", "Cancelled", "Timed out", "Lost"])
def test_the_title_tells_the_end(word):
    assert follow.read(f"<title>{word}: Count</title>").ended


def test_each_step_is_told_once(capsys):
    told: set[tuple[str, str]] = set()
    follow.tell(follow.read(LIVE), told)
    follow.tell(follow.read(LIVE), told)
    assert capsys.readouterr().out.splitlines() == [
        "submitted",
        "queued and placed; the data is on the node (0:00:05)",
        "  Run. The work is running & well.",
    ]


def test_a_step_that_comes_again_is_another_pieces(capsys):
    told: set[tuple[str, str]] = set()
    for sentence in ("Run. It runs.", "Release. It ends.", "Output. It is on its way."):
        follow.tell(follow.View("", [], sentence), told)
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, second) == ("  Run. It runs.", "  Release. It ends.")
    assert third.startswith("  Output. It is on its way. (this is the finish step now")


def lease(code: str, node: str, **fields) -> dict:
    return {
        "lease": code,
        "node": node,
        "simulated": node == "simulated",
        "gpus": ["GPU-1"],
        "allocated_at": "2026-11-30T08:00:10.000+00:00",
        "released_at": "2026-11-30T08:00:14.000+00:00",
        "launch_ms": 500,
        "run_ms": 3000,
        "output_ms": 400,
        "release_ms": 100,
        "held_ms": 4000,
        "uncounted_reason": "",
    } | fields


@pytest.fixture
def record() -> dict:
    shards = [{"index": 0, "kind": "main", "leases": [lease("l0", "simulated")]}]
    shards.append({"index": 0, "kind": "finish", "leases": [lease("l1", "this-machine")]})
    return {
        "job": "j1",
        "outcome": "succeeded",
        "submitted_at": "2026-11-30T08:00:00.000+00:00",
        "staged_at": "2026-11-30T08:00:02.000+00:00",
        "shards": shards,
        "inputs": [{"files": 1740, "bytes": 31_700_000}],
        "output": {"files": 5, "bytes": 1500, "verified": True},
        "held_ms": 8000,
        "gpu_ms": 4000,
    }


def test_a_good_record_has_no_problem(record):
    assert report.problems_of(record, pieces=1) == []


def test_the_record_is_printed(record, capsys):
    report.print_record(record)
    text = capsys.readouterr().out
    assert "staged     2.0 s after submit" in text
    assert "queued     8.0 s, not metered" in text
    assert "held 0:00:08.0 (8.0 s), GPU time 4.0 s" in text
    assert "1,740 files, 31.7 MB" in text
    assert "5 files, 1.5 kB, verified in the store" in text
    assert "* simulated GPUs: made up" in text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r.update(outcome="failed"), "the outcome is failed"),
        (lambda r: r["output"].update(verified=False), "the output is not verified"),
        (lambda r: r["shards"].pop(), "there are 1 pieces, not 2"),
        (lambda r: r["shards"][0]["leases"].clear(), "exactly one counted attempt"),
        (lambda r: r["shards"][1]["leases"][0].update(lease="l0"), "metered twice"),
        (lambda r: r["shards"][0]["leases"][0].update(released_at=None), "was not released"),
        (lambda r: r["shards"][0]["leases"][0].update(run_ms=1), "do not add up"),
        (lambda r: r.update(staged_at="2026-11-30T08:00:11.000+00:00"), "before the data"),
        (lambda r: r.update(staged_at=None), "before the data"),
    ],
)
def test_what_must_not_happen_is_found(record, change, problem):
    broken = deepcopy(record)
    change(broken)
    assert any(problem in found for found in report.problems_of(broken, pieces=1))


def test_attempts_that_do_not_count_are_allowed(record):
    retried = lease("l2", "simulated", uncounted_reason="supervisor_died")
    record["shards"][0]["leases"].append(retried)
    assert report.problems_of(record, pieces=1) == []


def test_the_standard_library_is_found():
    sources = stage.standard_library()
    paths = [source.path for source in sources]
    assert len(paths) > 500
    assert "json/decoder.py" in paths
    assert not any("site-packages" in path or "__pycache__" in path for path in paths)


def test_an_entry_names_size_and_digest(tmp_path):
    (tmp_path / "a.py").write_bytes(b"")
    entry = stage.Source("a.py", tmp_path / "a.py").entry()
    assert entry == {
        "path": "a.py",
        "size": 0,
        "digest": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_damaged_note_of_an_earlier_run_counts_as_none(tmp_path, text):
    (tmp_path / "note").write_text(text)
    state = demo.State(tmp_path / "note")
    assert state.get("job") == ""
    state.put("job", "abc")
    assert demo.State(tmp_path / "note").get("job") == "abc"


def run_script(code: str, data: Path, output: Path) -> str:
    env = os.environ | {"E31_DATA": str(data), "E31_OUTPUT": str(output), "E31_SHARD_INDEX": "0"}
    argv = ["bash", "-c", code] if code.startswith("python3 -") else [sys.executable, "-c", code]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout


def test_work_and_finish_give_the_right_table(tmp_path):
    data = tmp_path / "data" / "stdlib"
    data.mkdir(parents=True)
    (data / "one.py").write_text("x = 1  # one\n")
    (data / "broken.py").write_text('x = "\n')
    (data / "latin.py").write_bytes(b"x = '\xe9'\n")
    output = tmp_path / "output" / "0"
    work = (demo.MAIN_JOB / "work.py").read_text()
    assert "3 modules in piece 0" in run_script(work, tmp_path / "data", output)
    with open(output / "stats" / "tokens.csv") as file:
        found = {row["module"]: row for row in csv.DictReader(file)}
    # ENCODING, NAME, OP, NUMBER, COMMENT, NEWLINE, ENDMARKER
    assert found["stdlib/one.py"]["tokens"] == "7"
    assert (found["stdlib/one.py"]["NAME"], found["stdlib/one.py"]["COMMENT"]) == ("1", "1")
    assert found["stdlib/one.py"]["problem"] == ""
    assert found["stdlib/broken.py"]["problem"]
    assert found["stdlib/latin.py"]["problem"]
    said = run_script(demo.finish_command(), tmp_path / "output", tmp_path / "end")
    assert said.startswith("1 tables, 3 modules, ")
    assert len((tmp_path / "end" / "stats" / "all.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize("name", ["work.py", "finish.py"])
def test_the_scripts_are_short_and_need_nothing(name):
    text = (demo.MAIN_JOB / name).read_text()
    assert len(text.splitlines()) <= 30
