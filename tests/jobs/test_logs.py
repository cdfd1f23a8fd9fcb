"""Logs: appended once, read by pages, shown without trusting a byte."""

import threading
from datetime import timedelta

import pytest
from django.conf import settings as live_settings

from jobs.ansi import PLAIN, line_html
from jobs.logpage import LINES_A_PAGE, LONGEST_LINE
from jobs.logs import LogEndsElsewhere, append_log, line_page, log_path, log_size, read_log
from nodes.models import Lease
from portal.base.clock import db_now
from portal.base.errors import NotFound, TooLarge
from tests.factories import make_job, make_node

CODE = "bcdf234567"


def test_append_and_read():
    assert append_log(CODE, 0, b"one\n") == 4
    assert append_log(CODE, 4, b"two\n") == 8
    assert append_log(CODE, 8, b"") == 8
    assert read_log(CODE, 0, 100) == b"one\ntwo\n"
    assert read_log(CODE, 4, 2) == b"tw"
    assert read_log(CODE, 100, 5) == b""
    assert read_log("nothing", 0, 5) == b""


@pytest.mark.parametrize("offset", [-1, 0, 3, 5, 10**20])
def test_a_wrong_offset_says_where_to_go_on(offset):
    append_log(CODE, 0, b"1234")
    with pytest.raises(LogEndsElsewhere) as caught:
        append_log(CODE, offset, b"x")
    assert (caught.value.status, caught.value.code, caught.value.data) == (
        409,
        "offset",
        {"offset": 4},
    )
    assert log_size(CODE) == 4


def test_two_writers_of_the_same_piece_write_it_once():
    wrong, barrier = [], threading.Barrier(8)

    def write() -> None:
        barrier.wait()
        for n in range(50):
            try:
                append_log(CODE, n * 5, b"%04d\n" % n)
            except LogEndsElsewhere as error:
                wrong.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_log(CODE, 0, 10_000) == b"".join(b"%04d\n" % n for n in range(50))
    assert len(wrong) == 7 * 50


def test_a_log_has_an_end(settings):
    settings.LARGEST_LOG_BYTES = 10
    append_log(CODE, 0, b"123456")
    with pytest.raises(TooLarge) as caught:
        append_log(CODE, 6, b"789abcdef")
    assert caught.value.data == {"offset": 10}
    assert read_log(CODE, 0, 99) == b"123456789a"


@pytest.mark.parametrize("code", ["", "../x", "a/b", "A", "x" * 17, "a\0", "é", "a.log"])
def test_only_codes_name_logs(code):
    with pytest.raises(NotFound):
        log_path(code)


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"")
    (live_settings.DATA_DIR / "logs").mkdir()
    log_path(CODE).symlink_to(target)
    with pytest.raises(OSError):
        append_log(CODE, 0, b"x")
    assert target.read_bytes() == b""


def test_pages_of_lines():
    append_log(CODE, 0, b"".join(b"%d\n" % n for n in range(1, 26)) + b"open")
    page = line_page(CODE, None, 10, 100)
    assert (page.number, page.pages, page.total, page.first) == (3, 3, 26, 21)
    assert page.lines == [b"21", b"22", b"23", b"24", b"25", b"open"]
    assert line_page(CODE, 1, 10, 100).lines == [b"%d" % n for n in range(1, 11)]
    assert line_page(CODE, 2, 10, 100).lines == [b"%d" % n for n in range(11, 21)]
    assert line_page(CODE, 10**9, 10, 100).number == 3
    assert line_page(CODE, 0, 10, 100).number == 1
    assert line_page("none", None, 10, 100).lines == []


@pytest.mark.parametrize("content", [b"\n" * 3_000_000, b"x" * 3_000_000, b"ab\n" * 1_000_000])
def test_pages_over_block_borders(content):
    append_log(CODE, 0, content)
    last = line_page(CODE, None, 100, 50)
    assert len(last.lines) in {1, 100}
    assert all(len(line) <= 51 for line in last.lines)
    whole = content.removesuffix(b"\n").split(b"\n")
    assert last.total == len(whole)
    middle = line_page(CODE, last.pages // 2 + 1, 100, 50)
    assert middle.lines == [line[:51] for line in whole[middle.first - 1 :][:100]]


def shown(raw: bytes) -> str:
    return str(line_html(raw, PLAIN)[0])


@pytest.mark.parametrize(
    ("raw", "html"),
    [
        (b"<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        (b"\"'&", "&quot;&#x27;&amp;"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"a\x00b\x07c\x08", "a\ufffdb\ufffdc\ufffd"),
        (b"\x1b[31mred\x1b[0m plain", '<span class="ansi-fg-1">red</span> plain'),
        (b"\x1b[1;32;40mx", '<span class="ansi-bold ansi-fg-2 ansi-bg-0">x</span>'),
        (b"\x1b[91mx\x1b[39my", '<span class="ansi-fg-9">x</span>y'),
        (b"\x1b[38;5;196mx", '<span class="ansi-fg-9">x</span>'),
        (b"\x1b[38;2;0;0;255mx", '<span class="ansi-fg-12">x</span>'),
        (b"\x1b[38;5mx", "x"),
        (b"\x1b[999999999999mx", "x"),
        (b"\x1b[2J\x1b[Hx", "x"),
        (b"\x1b]0;title\x07x", "x"),
        (b"\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\", "click"),
        (b"\x1b]0;never ended", ""),
        (b"\x1b", ""),
        (b"\x1b[", ""),
        (b"\x1b[31;<b>m", "&gt;m"),
        (b'\x1b[3"onload=x"1mx', None),
        (b"10%\r50%\r100%", "100%"),
        (b"done\r", "done"),
        (b"a\rb\r\r", "b"),
        ("\u202eevil\u2066".encode(), "\ufffdevil\ufffd"),
        (b"tab\there", "tab\there"),
        ("naïve 日本 🎉".encode(), "naïve 日本 🎉"),
    ],
)
def test_lines_as_html(raw, html):
    out = shown(raw)
    if html is None:
        assert "<" not in out
        assert '"' not in out
    else:
        assert out == html


def test_a_color_goes_on_to_the_next_line():
    first, look = line_html(b"\x1b[31ma", PLAIN)
    second, look = line_html(b"b\x1b[0m", look)
    assert str(first) == '<span class="ansi-fg-1">a</span>'
    assert str(second) == '<span class="ansi-fg-1">b</span>'
    assert look == PLAIN


def test_a_line_that_changes_color_at_every_letter_stays_small():
    out = shown(b"".join(b"\x1b[%dmx" % (31 + n % 6) for n in range(3000)))
    assert out.count("<span") <= 501


@pytest.fixture
def job(team):
    return make_job(team, state="active", active_at=db_now())


def attempt(job, node, number: int, **fields) -> Lease:
    """A lease of the job's first piece that ran and ended."""
    now = db_now()
    values = {
        "shard": job.shards.first(),
        "node": node,
        "epoch": 1,
        "number": number,
        "state": "released",
        "gpu_count": 0,
        "cpus": 1,
        "memory_bytes": 1,
        "disk_bytes": 1,
        "time_limit": timedelta(hours=1),
        "output_window": timedelta(seconds=120),
        "placed_at": now,
        "ready_at": now,
        "granted_at": now,
        "allocated_at": now,
        "released_at": now,
        "ended_at": now,
    }
    return Lease.objects.create(**(values | fields))


def running(job, node, number: int = 1) -> Lease:
    return attempt(job, node, number, state="running", released_at=None, ended_at=None)


def test_a_piece_that_has_not_started(owner_client, job):
    text = owner_client.get(f"/jobs/{job.code}/log/0").content.decode()
    assert "This piece has not started." in text
    assert owner_client.get(f"/jobs/{job.code}/log/0/raw").status_code == 404


def test_the_log_of_a_running_piece_follows(owner_client, job):
    lease = running(job, make_node())
    append_log(lease.code, 0, b"<b>hello</b>\n\x1b[31mred\n")
    page = owner_client.get(f"/jobs/{job.code}/log/0").content.decode()
    assert "&lt;b&gt;hello&lt;/b&gt;" in page
    assert 'class="ansi-fg-1"' in page
    assert 'hx-trigger="every 3s, refresh"' in page
    assert 'id="L2"' in page
    part = owner_client.get(f"/jobs/{job.code}/log/0", headers={"HX-Request": "true"})
    assert "<html" not in part.content.decode()


def test_following_ends_with_the_attempt(owner_client, job):
    lease = attempt(job, make_node(), 1)
    append_log(lease.code, 0, b"end\n")
    page = owner_client.get(f"/jobs/{job.code}/log/0").content.decode()
    assert "every 3s" not in page


def test_the_kept_attempt_is_shown_and_the_others_linked(owner_client, job):
    node = make_node()
    first, second = attempt(job, node, 1), attempt(job, node, 2)
    append_log(first.code, 0, b"from the first\n")
    append_log(second.code, 0, b"from the second\n")
    address = f"/jobs/{job.code}/log/0"
    assert "from the second" in owner_client.get(address).content.decode()
    job.shards.update(kept_lease=first.code)
    text = owner_client.get(address).content.decode()
    assert "from the first" in text
    assert 'href="?attempt=2"' in text
    assert "from the second" in owner_client.get(address + "?attempt=2").content.decode()
    assert owner_client.get(address + "?attempt=3").status_code == 404


def test_a_link_to_a_line_opens_its_page(owner_client, job):
    lease = attempt(job, make_node(), 1)
    append_log(lease.code, 0, b"".join(b"line %d\n" % n for n in range(1, 2 * LINES_A_PAGE)))
    text = owner_client.get(f"/jobs/{job.code}/log/0?line=7").content.decode()
    assert 'id="L7"' in text
    assert f'id="L{LINES_A_PAGE}"' in text
    assert f'id="L{LINES_A_PAGE + 1}"' not in text


@pytest.mark.parametrize(
    "query", ["page=x", "page=-1", "page=0", "page=" + "9" * 400, "line=1e9", "wrap=%ff"]
)
def test_odd_queries_are_answered(owner_client, job, query):
    lease = attempt(job, make_node(), 1)
    append_log(lease.code, 0, b"x\n" * 3)
    assert owner_client.get(f"/jobs/{job.code}/log/0?{query}").status_code == 200


@pytest.mark.parametrize("shard", ["1", "-1", "x", "finish", "9" * 50, "٠", "0.0"])
def test_odd_pieces_are_not_found(owner_client, job, shard):
    assert owner_client.get(f"/jobs/{job.code}/log/{shard}").status_code == 404


def test_a_long_line_is_cut_on_the_page_and_whole_in_the_file(owner_client, job):
    lease = attempt(job, make_node(), 1)
    line = b"x" * (LONGEST_LINE + 100)
    append_log(lease.code, 0, line + b"\n")
    text = owner_client.get(f"/jobs/{job.code}/log/0").content.decode()
    assert "cut here; the raw log has all of it" in text
    raw = owner_client.get(f"/jobs/{job.code}/log/0/raw")
    assert b"".join(raw.streaming_content) == line + b"\n"
    assert raw["Content-Disposition"] == f'attachment; filename="{job.code}-0-1.log"'
    assert raw["X-Content-Type-Options"] == "nosniff"
    assert raw["Content-Type"] == "application/octet-stream"


def test_hostile_bytes_reach_no_tag(owner_client, job):
    lease = attempt(job, make_node(), 1)
    append_log(lease.code, 0, bytes(range(256)) * 40 + b"</span><img src=x onerror=alert(1)>\n")
    text = owner_client.get(f"/jobs/{job.code}/log/0").content.decode()
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
