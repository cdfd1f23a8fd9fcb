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


METER = """
  let now = 0;
  const meter = new found.Meter(() => now);
  const seen = [];
  for (const [at, bytes] of call.samples) {
    now = at;
    meter.take(bytes);
    seen.push(meter.left(1000));
  }
  return seen;
"""


def meter(run, samples):
    return run("upload-meter", METER, samples=samples)


def test_nothing_is_said_of_the_first_seconds(run):
    seen = meter(run, [[t, 100 * t] for t in range(5)])
    assert seen == [None] * 5
    assert meter(run, [[t, 0] for t in range(60)]) == [None] * 60


def test_a_steady_rate_is_told_as_it_is(run):
    last = meter(run, [[t, 100 * t] for t in range(30)])[-1]
    assert last == {"rate": 100, "p50": 10, "p90": 10}


def test_an_uneven_rate_has_a_later_p90(run):
    samples, bytes_ = [], 0
    for t in range(100):
        bytes_ += 10 if t % 40 < 12 else 100
        samples.append([t, bytes_])
    last = meter(run, samples)[-1]
    assert last["p50"] < last["p90"]
    assert 10 <= last["p50"] <= 13


def test_bytes_that_are_void_begin_the_measurement_again(run):
    seen = meter(run, [[t, 100 * t] for t in range(20)] + [[20, 0], [21, 100]])
    assert seen[19] is not None
    assert seen[20:] == [None, None]


def test_the_share_never_exceeds_one_nor_jumps_back_unsaid(run):
    body = """
      const meter = new found.Meter();
      const steps = [[50, 100], [40, 100], [120, 100], [10, 100, true], [0, 0]];
      return steps.map((step) => meter.share(...step));
    """
    assert run("upload-meter", body) == [0.5, 0.5, 1, 0.1, 1]


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


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1_000_003])
def test_the_slow_sha256_is_the_quick_one(run, size):
    body = """
      const bytes = new Uint8Array(call.size).map((_, at) => at * 131 + call.size);
      const two = (byte) => byte.toString(16).padStart(2, "0");
      return [...found.sha256Slowly(bytes.buffer)].map(two).join("");
    """
    content = bytes((at * 131 + size) % 256 for at in range(size))
    assert run("upload-sha256", body, size=size) == hashlib.sha256(content).hexdigest()
