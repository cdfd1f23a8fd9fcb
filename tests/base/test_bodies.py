"""JSON bodies of programs: what is not what it should be is a 4xx with a sentence."""

import io
import json

import pytest
from django.http import UnreadablePostError

from portal.base.bodies import BadBody, any_json, read_json
from portal.base.errors import TooLarge


def post(rf, body: object, kind: str = "application/json"):
    return rf.post("/", body if isinstance(body, bytes) else json.dumps(body), content_type=kind)


def test_any_json_takes_every_kind_and_read_json_an_object(rf):
    assert any_json(post(rf, [1, "a\0b"])) == [1, "a\0b"]
    assert read_json(post(rf, {"a": 1})) == {"a": 1}
    for body in ([1], "text", {"a": "x\0"}, {"\ud800": 1}):
        with pytest.raises(BadBody):
            read_json(post(rf, body))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"NaN", b"[Infinity]", b"[" * 100_000, b"1" * 5000]
)
def test_what_is_not_json_is_said(rf, body):
    with pytest.raises(BadBody, match="is not JSON"):
        any_json(post(rf, body))


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_a_deep_body_is_refused(rf, opening, closing):
    for depth in (40, 400, 900):
        body = '{"a":' + opening * depth + "1" + closing * depth + "}"
        with pytest.raises(BadBody, match=r"nested|depth"):
            read_json(post(rf, body.encode()))
    assert read_json(post(rf, ('{"a":' + opening * 15 + "1" + closing * 15 + "}").encode()))


def test_a_body_over_either_limit_is_too_large(rf, settings):
    with pytest.raises(TooLarge, match="at most 10 bytes"):
        any_json(post(rf, b" " * 11), most_bytes=10)
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    with pytest.raises(TooLarge):
        any_json(post(rf, b" " * 11))


@pytest.mark.parametrize("length", ["x", "-1", "1.5", "١"])
def test_a_length_that_is_no_number_is_refused(rf, length):
    request = post(rf, {})
    request.META["CONTENT_LENGTH"] = length
    with pytest.raises(BadBody, match="Content-Length"):
        any_json(request)


def test_a_body_that_was_read_as_a_form_is_not_json(rf):
    request = rf.post("/", {"a": "1"})
    assert request.POST
    with pytest.raises(BadBody):
        any_json(request)


def test_a_body_that_breaks_off_is_said(rf):
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise UnreadablePostError("connection reset")

    request = post(rf, {})
    request._stream = Broken()
    with pytest.raises(BadBody, match="ended too early"):
        any_json(request)
