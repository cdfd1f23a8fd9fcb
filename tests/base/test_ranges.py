"""The one answer with a part of a file, for people's downloads and for nodes."""

import pytest

from portal.base.ranges import RangeNotSatisfiable, ranged

CONTENT = b"0123456789"


def read(start: int, stop: int):
    yield CONTENT[start:stop]


@pytest.mark.parametrize(
    ("header", "status", "body", "part"),
    [
        ("", 200, CONTENT, None),
        ("bytes=0-", 200, CONTENT, None),
        ("bytes=3-", 206, b"3456789", "bytes 3-9/10"),
        ("bytes=-2", 206, b"89", "bytes 8-9/10"),
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
    ],
)
def test_whole_or_part(header, status, body, part):
    answer = ranged(header, len(CONTENT), read)
    assert (answer.status_code, b"".join(answer)) == (status, body)
    assert (answer.get("Content-Range"), answer["Content-Length"]) == (part, str(len(body)))
    head = ranged(header, len(CONTENT), read, head=True)
    assert (head["Content-Length"], b"".join(head)) == (str(len(body)), b"")


def test_outside_of_the_file():
    with pytest.raises(RangeNotSatisfiable):
        ranged("bytes=10-", len(CONTENT), read)
