"""The rule of digests stands twice, as the agent imports nothing of the portal: it must be one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.agent import digests as of_agent
from staging import digests as of_portal

MIB = 2**20
EDGE = 8 * MIB * 9500  # where chunks grow


@given(size=st.integers(0, 2**50))
def test_chunks_have_the_same_size(size):
    assert of_agent.chunk_size(size) == of_portal.chunk_size_of(size)


@pytest.mark.parametrize("factor", [1, 2, 4, 1024])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_chunks_grow_at_the_same_size(factor, more):
    size = EDGE * factor + more
    assert of_agent.chunk_size(size) == of_portal.chunk_size_of(size)


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 8 bytes on both sides, so that a few bytes make many."""
    monkeypatch.setattr(of_agent, "CHUNK", 8)
    monkeypatch.setattr(of_portal, "SMALLEST_CHUNK", 8)


@pytest.mark.parametrize("size", [*range(35), 63, 64, 65, 4096])
@pytest.mark.parametrize("piece", [1, 7, 8, 9, 5000])
def test_files_have_the_same_digest(small_chunks, size, piece):
    data = bytes(n * 7 % 256 for n in range(size))
    ours, theirs = of_portal.Hasher(size), of_agent.FileHash(size)
    for start in range(0, size, piece):
        ours.update(data[start : start + piece])
        theirs.update(data[start : start + piece])
    assert ours.finish()[0] == theirs.digest()
    assert of_portal.is_digest(theirs.digest(), size)


@given(
    st.lists(
        st.tuples(
            st.text("0123456789abcdef", min_size=64, max_size=64),
            st.integers(0, 2**40),
            st.booleans(),
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
        ),
        unique_by=lambda file: file[3],
    )
)
def test_manifests_have_the_same_digest(files):
    assert of_agent.manifest_digest(files) == of_portal.manifest_digest(files)
