"""Modules of the uploader one by one, in the browser that runs them."""

import hashlib

import pytest

MODULE = "async (call) => { const found = await import(`/static/js/${call.module}.js`); %s }"


@pytest.fixture
def run(visit):
    """run(module, body, **values): what a body returns that sees the module as `found`."""
    page = visit().go("/accounts/login/")

    def call(module: str, body: str, **values):
        return page.evaluate(MODULE % body, {"module": module, **values})

    return call


def test_time_left_is_what_the_portal_measured(run):
    body = "return call.known.map((one) => found.timeLeft(one, 3000));"
    known = {"bytes": 2500, "uploaded_bytes": 1000, "rate_bps": 90, "p50_s": 15, "p90_s": 20}
    unknown = [None, known | {"rate_bps": None, "p50_s": None, "p90_s": None}]
    done = known | {"uploaded_bytes": 2500, "p50_s": 0, "p90_s": 0}
    # the portal knows of half of what the page lists by now
    wanted = {"rate": 90, "p50": 30, "p90": 40}
    seen = run("upload-meter", body, known=[known, *unknown, done])
    assert seen == [wanted, None, None, None]


def test_the_share_never_exceeds_one_nor_jumps_back_unsaid(run):
    body = "return call.steps.map((step) => found.share(...step));"
    steps = [[50, 100, 0], [40, 100, 0.5], [120, 100, 0.5], [10, 100, 0], [0, 0, 0]]
    assert run("upload-meter", body, steps=steps) == [0.5, 0.5, 1, 0.1, 0]


def test_numbers_in_words(run):
    body = "return call.numbers.map((one) => [found.inBytes(one), found.ofBytes(one / 2, one)]);"
    seen = run("upload-words", body, numbers=[999, 1500, 980_000_000, 999_960])
    assert seen == [
        ["999 bytes", "500 of 999 bytes"],
        ["1.5 kB", "750 bytes of 1.5 kB"],
        ["980 MB", "490 of 980 MB"],
        ["1 MB", "500 kB of 1 MB"],
    ]


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (3, "709e80c88487a2411e1ee4dfb9f22a861492d20c4765150c0c794abd70f8147c"),
    ],
)
def test_a_digest_of_one_chunk_is_the_plain_one(run, size, digest):
    body = "return found.digestOf(new Blob([new Uint8Array(call.size)]));"
    assert run("upload-digest", body, size=size) == digest


def test_a_digest_of_two_chunks_says_so(run):
    body = "return found.digestOf(new Blob([new Uint8Array(call.size)]));"
    chunks = hashlib.sha256(bytes(8 * 2**20)).digest() + hashlib.sha256(b"\0").digest()
    wanted = hashlib.sha256(chunks).hexdigest() + "-2"
    assert run("upload-digest", body, size=8 * 2**20 + 1) == wanted


def test_the_list_counts_what_it_holds(run):
    body = """
      const list = new found.List();
      const S = found.S;
      for (let n = 0; n < 600; n += 1) list.add(`d${n % 3}/${n}`, 10, 0);
      const twice = list.add("d0/0", 10, 0);
      list.set(0, S.REFUSED, "no");
      list.set(1, S.UPLOADED);
      list.confirm(2, 4);
      const back = [list.confirm(2, 3), list.confirm(2, 30)];
      list.set(3, S.REMOVED);
      list.set(3, S.LISTED);
      const { files, bytes, there, confirmedBytes: confirmed } = list;
      const found_at = [list.find("d1/1"), list.find("d1/0")];
      return { twice, back, files, bytes, confirmed, there, found_at, path: list.path(599) };
    """
    assert run("upload-list", body) == {
        "twice": -1,
        "back": [True, False],
        "files": 599,
        "bytes": 5990,
        "confirmed": 20,
        "there": 1,
        "found_at": [1, -1],
        "path": "d2/599",
    }


def test_rows_are_grouped_by_folder(run):
    body = """
      const { List, S } = await import("/static/js/upload-list.js");
      const list = new List();
      for (const path of call.paths) list.add(path, 1, 0);
      list.set(0, S.REMOVED);
      const name = (row) => (row < 0 ? list.folders[-1 - row] : list.path(row));
      return [...found.order(list, "all")].map(name);
    """
    paths = ["gone/x", "b/2", "a/1", "top", "b/1", "a/b/c"]
    wanted = ["top", "a/", "a/1", "a/b/", "a/b/c", "b/", "b/1", "b/2"]
    assert run("upload-rows", body, paths=paths) == wanted


def test_what_arrived_before_the_page_counts_from_the_first_drawing_on(run):
    """One of three files is there; the other two are listed as unfinished, then chosen again."""
    body = """
      const { List, S } = await import("/static/js/upload-list.js");
      const box = document.body.appendChild(document.createElement("div"));
      box.id = "uploader";
      Object.assign(box.dataset, { files: 3, uploaded: 1, bytes: 25, arrived: 3 });
      const list = new List();
      const status = new found.Status({ list });
      list.add("a", 10, 0, S.NEEDED);
      list.add("b", 14, 0, S.NEEDED);
      const seen = [status.outside(list)];
      list.add("c", 1, 0); // the one that is there is chosen too
      seen.push(status.outside(list));
      status.known = { files: 4, bytes: 30 }; // another was declared
      list.add("d", 5, 0);
      seen.push(status.outside(list));
      return seen;
    """
    nothing = {"files": 0, "bytes": 0}
    assert run("upload-status", body) == [{"files": 1, "bytes": 1}, nothing, nothing]


def test_a_row_says_what_it_waits_for(run):
    body = """
      const { List, S } = await import("/static/js/upload-list.js");
      const list = new List();
      const states = [S.READY, S.SENDING, S.UPLOADED, S.FAILED];
      for (const state of states) list.add(`f${state}`, 2000, 0, state);
      list.confirm(1, 500);
      list.note(3, "it is gone");
      const words = (still) => [0, 1, 2, 3].map((at) => found.wordFor(list, at, still));
      return ["", "paused", "waits for contact"].map(words);
    """
    going, paused, cut = run("upload-rows", body)
    assert going == ["waiting, 2 kB", "500 bytes of 2 kB", "2 kB", "failed: it is gone"]
    assert paused == ["paused, 2 kB", "paused, 500 bytes of 2 kB kept", *going[2:]]
    assert cut == [
        "waits for contact, 2 kB",
        "waits for contact, 500 bytes of 2 kB kept",
        *going[2:],
    ]


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1_000_003])
def test_the_slow_sha256_is_the_quick_one(run, size):
    body = """
      const bytes = new Uint8Array(call.size).map((_, at) => at * 131 + call.size);
      const two = (byte) => byte.toString(16).padStart(2, "0");
      return [...found.sha256Slowly(bytes.buffer)].map(two).join("");
    """
    content = bytes((at * 131 + size) % 256 for at in range(size))
    assert run("upload-sha256", body, size=size) == hashlib.sha256(content).hexdigest()
