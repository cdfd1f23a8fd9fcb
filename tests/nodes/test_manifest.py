"""The listing of a lease's files: each page costs what is on it, whatever the whole holds."""

from contextlib import contextmanager

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Job, JobInput, ShardPart
from jobs.shards import create_shards, cut_job
from nodes import leases, manifest
from nodes.manifest import BadCursor, file_page, lease_file, lease_totals
from nodes.models import Lease
from portal.base.clock import db_now
from staging.models import Dataset, File
from tests.factories import make_dataset, make_job, make_node

pytestmark = pytest.mark.django_db
PAGE = 50
DIGEST = "a" * 64


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(manifest, "PAGE", PAGE)


def filled(team, paths: list[str], **fields) -> Dataset:
    dataset = make_dataset(team, **fields)
    File.objects.bulk_create(
        File(
            dataset=dataset,
            path=path,
            size=n % 7,
            digest=DIGEST,
            position=position,
            state="staged",
        )
        for position, (n, path) in enumerate(
            sorted(enumerate(paths), key=lambda item: item[1].encode())
        )
    )
    Dataset.objects.filter(pk=dataset.pk).update(
        file_count=len(paths), byte_count=sum(n % 7 for n in range(len(paths)))
    )
    dataset.refresh_from_db()
    return dataset


def leased(job: Job, index: int = 0, kind: str = "main") -> Lease:
    shard = job.shards.get(index=index, kind=kind)
    node = make_node(f"n{shard.pk}")
    lease = leases.place(shard=shard, node=node, disk_bytes=1, at=db_now())
    return Lease.objects.select_related("shard__job__output").get(pk=lease.pk)


def job_on(team, inputs: list[tuple[Dataset, dict]], shards: int = 1, **fields) -> Job:
    job = make_job(team, shards=shards, **fields)
    job.shards.all().delete()
    for number, (dataset, how) in enumerate(inputs):
        JobInput.objects.create(job=job, dataset=dataset, mount=f"in{number}", **how)
    create_shards(cut_job(job=job, at=db_now()))
    return job


@contextmanager
def rows_fetched():
    """The rows that each SELECT over files gives, counted by asking again afterwards."""
    counts: list[int] = []
    with CaptureQueriesContext(
        connection,
    ) as captured:
        yield counts
    asked = [q["sql"] for q in captured if q["sql"].startswith("SELECT") and "LIMIT" in q["sql"]]
    with connection.cursor() as cursor:
        for sql in asked:
            if f'FROM "{File._meta.db_table}"' in sql:
                cursor.execute(sql)
                counts.append(len(cursor.fetchall()))


def whole(lease: Lease) -> tuple[list[list[manifest.LeaseFile]], list[int]]:
    """All pages of a listing, and the rows that each query over files fetched."""
    pages, cursor = [], ""
    with rows_fetched() as counts:
        while cursor is not None:
            page, cursor = file_page(lease, cursor)
            pages.append(page)
    return pages, counts


def test_a_page_is_one_query_that_fetches_what_is_on_it(team):
    """Twenty times as many files are twenty times as many pages, each as cheap as before."""
    for count in (2 * PAGE, 40 * PAGE):
        job = job_on(team, [(filled(team, [f"d{n % 9}/{n}" for n in range(count)]), {})])
        lease = leased(job)
        pages, counts = whole(lease)
        assert len(counts) == len(pages) == count // PAGE
        assert max(counts) <= PAGE + 1
        assert sum(counts) <= count + len(pages)
        files = [file for page in pages for file in page]
        assert len({file.id for file in files}) == count
        assert (len(files), sum(file.size for file in files)) == lease_totals(lease)


def test_no_page_sorts_or_reads_the_files_before_it(team):
    if connection.vendor != "sqlite":
        pytest.skip("the words of a query plan are SQLite's")
    job = job_on(team, [(filled(team, [f"{n:05}" for n in range(4 * PAGE)]), {})])
    lease = leased(job)
    _, cursor = file_page(lease, "")
    assert cursor is not None
    with CaptureQueriesContext(connection) as captured:
        file_page(lease, cursor)
    (sql,) = [q["sql"] for q in captured if "LIMIT" in q["sql"] and "LEFT" not in q["sql"]][-1:]
    with connection.cursor() as query:
        query.execute(f"EXPLAIN QUERY PLAN {sql}")
        plan = " ".join(str(row[-1]) for row in query.fetchall())
    assert "position" in plan
    assert "TEMP B-TREE" not in plan
    assert "SCAN" not in plan


def test_shards_share_the_chosen_files_and_read_no_other(team):
    paths = [f"a/{n}.csv" for n in range(130)] + [f"a/{n}.txt" for n in range(70)] + ["b/x.csv"]
    dataset = filled(team, paths)
    whole_one = filled(team, ["k/1", "k/2", "other"], name="Keys")
    split = {"patterns": ["a/*.csv"], "split": True}
    job = job_on(team, [(dataset, split), (whole_one, {"patterns": ["k/**"]})], shards=3)
    seen: list[str] = []
    for index in range(3):
        lease = leased(job, index)
        pages, counts = whole(lease)
        files = [file for page in pages for file in page]
        assert {f.path for f in files if f.path.startswith("data/in1/")} == {
            "data/in1/k/1",
            "data/in1/k/2",
        }
        assert (len(files), sum(f.size for f in files)) == lease_totals(lease)
        assert sum(counts) <= len(files) + len(pages) * 2 + 70
        seen += [f.path for f in files if f.path.startswith("data/in0/")]
        foreign = dataset.files.exclude(path__in=[p.removeprefix("data/in0/") for p in seen])
        assert all(lease_file(lease, file.pk) is None for file in foreign)
    assert sorted(seen) == sorted(f"data/in0/a/{n}.csv" for n in range(130))


def test_what_no_pattern_can_narrow_comes_in_pages_that_may_be_empty(team):
    """A class of characters in the middle: the database sends the rows, and they are left out."""
    paths = [f"{n:04}x.bin" for n in range(5 * PAGE)] + ["9999y.bin"]
    job = job_on(team, [(filled(team, paths), {"patterns": ["*[y].bin"]})])
    pages, counts = whole(leased(job))
    assert [file.path for page in pages for file in page] == ["data/in0/9999y.bin"]
    assert max(counts) <= PAGE + 1


def test_a_finish_step_reads_the_outputs_of_the_others_and_the_code(team):
    job = make_job(team, shards=2, finish_command="merge", code_dataset=filled(team, ["go.py"]))
    job.shards.create(index=0, kind="finish", queued_at=db_now())
    outputs = [f"{n % 2}/{n}" for n in range(3 * PAGE)] + ["finish/own"]
    File.objects.bulk_create(
        File(dataset=job.output, path=path, size=1, digest=DIGEST) for path in outputs
    )
    File.objects.create(dataset=job.output, path="1/late", size=1)
    lease = leased(job, kind="finish")
    pages, counts = whole(lease)
    files = [file.path for page in pages for file in page]
    assert sorted(files) == sorted([f"data/{path}" for path in outputs[:-1]] + ["code/go.py"])
    assert len(counts) <= len(pages) + 1
    assert len(files) == lease_totals(lease)[0]


def test_a_shard_without_files_has_one_empty_page(team):
    job = job_on(team, [(filled(team, ["only"]), {"split": True})], shards=2)
    empty = next(i for i in (0, 1) if not ShardPart.objects.filter(shard__index=i).exists())
    assert file_page(leased(job, empty), "") == ([], None)


@pytest.mark.parametrize("cursor", ["x", "1", "-1.0", "1.1.1", "1.x", "٠.٠", "0." + "9" * 40])
def test_a_cursor_of_nobodys_making_is_refused(team, cursor):
    with pytest.raises(BadCursor):
        file_page(leased(make_job(team)), cursor)


def test_a_cursor_beyond_the_end_is_the_end(team):
    lease = leased(make_job(team))
    assert file_page(lease, "7.0") == ([], None)
    assert file_page(lease, "0.999999999999999999") == ([], None)
