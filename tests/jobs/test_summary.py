"""The sentence that restates a job, its arithmetic, and the tree under /data."""

from datetime import UTC, datetime, timedelta

import pytest

from jobs.summary import Ask, arithmetic, length_words, sentence
from jobs.tree import MOST_CHILDREN, top_folders, tree

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            Ask(gpus=8, hours=4 * HOUR, shards=1, work="a Bash script", data=[("This", 3, 1500)]),
            "Eight GPUs for four hours, to run a Bash script on This (3 files, 1.5 kB).",
        ),
        (
            Ask(gpus=0, hours=HOUR / 2, shards=20, parallel=5),
            "CPUs only for half an hour for each of 20 pieces, at most five at once, "
            "to run the work on no data.",
        ),
        (
            Ask(
                gpus=1, hours=HOUR, shards=1, gpu_memory=24 * 2**30, finish=True,
                needed_by=datetime(2026, 12, 1, 7, tzinfo=UTC), data=[("A", 1, 1), ("B", 0, 0)],
            ),
            "One GPU of at least 24 GiB for one hour, to run the work on two datasets "
            "(1 file, 1 byte), then a finish step on the outputs, needed by 2026-12-01 07:00 UTC.",
        ),
        (Ask(gpus=1), "Fill in GPUs, hours and pieces, and the job is restated here."),
    ],
)  # fmt: skip
def test_sentences(ask, words):
    assert sentence(ask) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (90, "90 seconds"),
        (60, "one minute"),
        (1800, "half an hour"),
        (5400, "1:30:00"),
        (86400, "24 hours"),
    ],
)
def test_lengths(seconds, words):
    assert length_words(timedelta(seconds=seconds)) == words


def test_arithmetic_counts_every_attempt(settings):
    settings.OUTPUT_WINDOW = timedelta(minutes=6)
    settings.RATE_TEXT = "Two coins an hour."
    ask = Ask(gpus=2, hours=4 * HOUR, shards=3, retries=1, finish=True, finish_gpus=1)
    result = arithmetic(ask)
    assert (result.formula, result.most) == (
        "(2 × (4:00:00 + 0:06:00) × 3 + 1 × (4:00:00 + 0:06:00)) × 2",
        "57.40",
    )
    assert result.rate == "Two coins an hour."
    assert "first attempt and 1 retry" in result.retries


def test_a_job_on_cpus_has_no_gpu_hours():
    result = arithmetic(Ask(gpus=0, hours=HOUR, shards=2))
    assert (result.formula, result.most, result.held) == ("", "", "2.07")


def test_the_tree_is_cut_and_sorted():
    files = [(f"d/{n:03}", 2) for n in range(40)] + [("a.txt", 1)]
    top = tree("in", files)
    assert (top.files, top.bytes, [child.name for child in top.children]) == (
        41,
        81,
        ["d", "a.txt"],
    )
    folder = top.children[0]
    assert (len(folder.children), folder.hidden) == (MOST_CHILDREN, 40 - MOST_CHILDREN)


def test_ticks_begin_where_there_is_a_choice():
    assert [t.name for t in top_folders([("r/a/1", 1), ("r/b/2", 2), ("r/c", 3)])] == [
        "r/a/",
        "r/b/",
    ]
    assert [t.name for t in top_folders([("a/1", 1), ("x", 2)])] == ["a/"]
    assert top_folders([("x", 2)]) == []
    assert top_folders([]) == []
