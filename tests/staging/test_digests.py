"""Digests: chunks by the rule, the same however the bytes arrive and wherever it restarts."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging import digests

MIB = 2**20


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 8 bytes, so that a few bytes make many."""
    monkeypatch.setattr(digests, "SMALLEST_CHUNK", 8)


@pytest.mark.parametrize(
    ("size", "chunk", "count"),
    [
        (0, 8 * MIB, 1),
        (1, 8 * MIB, 1),
        (8 * MIB, 8 * MIB, 1),
        (8 * MIB + 1, 8 * MIB, 2),
        (8 * MIB * 9500, 8 * MIB, 9500),
        (8 * MIB * 9500 + 1, 16 * MIB, 4751),
        (5 * 2**40, 1024 * MIB, 5120),
    ],
)
def test_the_rule_of_chunks(size, chunk, count):
    assert (digests.chunk_size_of(size), digests.chunk_count(size)) == (chunk, count)


def test_one_chunk_has_the_plain_digest(small_chunks):
    hasher = digests.Hasher(5)
    hasher.update(b"hello")
    assert hasher.finish()[0] == hashlib.sha256(b"hello").hexdigest()


def test_an_empty_file_is_one_empty_chunk():
    assert digests.Hasher(0).finish() == (digests.EMPTY, bytes.fromhex(digests.EMPTY))


def test_several_chunks_have_the_digest_of_their_digests(small_chunks):
    hasher = digests.Hasher(20)
    hasher.update(b"0123456789abcdefghij")
    parts = [hashlib.sha256(p).digest() for p in (b"01234567", b"89abcdef", b"ghij")]
    assert hasher.finish() == (
        hashlib.sha256(b"".join(parts)).hexdigest() + "-3",
        b"".join(parts),
    )


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200)))
def test_pieces_and_restarts_change_nothing(data, cuts):
    original = digests.SMALLEST_CHUNK
    digests.SMALLEST_CHUNK = 8
    try:
        whole = digests.Hasher(len(data))
        whole.update(data)
        wanted = whole.finish()
        hasher, at = digests.Hasher(len(data)), 0
        for cut in sorted(c for c in cuts if c <= len(data)):
            hasher.update(data[at:cut])
            at = cut
            hasher = digests.Hasher(len(data), bytes(hasher.chunks))
            hasher.update(data[hasher.resume_at : at])
        hasher.update(data[at:])
        assert hasher.finish() == wanted
    finally:
        digests.SMALLEST_CHUNK = original


@pytest.mark.parametrize(
    ("text", "size", "right"),
    [
        ("a" * 64, 1, True),
        ("a" * 64, 9 * MIB, False),
        ("a" * 64 + "-2", 9 * MIB, True),
        ("a" * 64 + "-3", 9 * MIB, False),
        ("A" * 64, 1, False),
        ("a" * 63, 1, False),
        ("a" * 64 + "-1", 1, False),
        ("a" * 64 + "\n", 1, False),
        ("٣" * 64, 1, False),
        ("", 1, False),
    ],
)
def test_the_form_of_a_digest(text, size, right):
    assert digests.is_digest(text, size) is right


def test_the_manifest_is_sorted_by_the_bytes_of_paths():
    files = [
        ("d1", 1, False, "b"),
        ("d2", 2, True, "a/x"),
        ("d3", 3, False, "é"),
        ("d4", 4, False, "Z"),
    ]
    text = "d4 4 - Z\0d2 2 x a/x\0d1 1 - b\0d3 3 - é\0"
    wanted = hashlib.sha256(text.encode()).hexdigest()
    assert digests.manifest_digest(files) == digests.manifest_digest(files[::-1]) == wanted
