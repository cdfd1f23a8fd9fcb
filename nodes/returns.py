"""Output on its way back: declared and verified under one lease's token."""

import hashlib

from django.db import transaction
from django.db.models import F

from jobs import services as jobs
from nodes import results
from nodes.models import Lease
from portal.base.clock import db_now
from portal.base.errors import Conflict, DomainError, TooLarge
from staging import services as staging
from staging.models import Dataset, File
from staging.services import Entry, FilePlan
from staging.states import FileState


class OutputRefused(DomainError):
    """A file of the output is not accepted; the sentence names it."""

    code = "output_refused"


class OutputIncomplete(Conflict):
    """Not every declared file is verified in the store; `send` lists those that are missing."""

    code = "output_incomplete"


def _output(lease: Lease) -> Dataset:
    output = lease.shard.job.output
    if output is None:
        raise Conflict("This job returns nothing.")
    return output


def declare_output(*, lease: Lease, files: list[dict]) -> list[dict]:
    """Where to send each file of the output, below the shard's folder. May be repeated.

    Raises StaleLease for an attempt that was fenced meanwhile: what it had listed is gone by then.
    """
    with transaction.atomic():
        _still_returns(lease)
        return _declare(lease, files)


def _still_returns(lease: Lease) -> None:
    """Write the lease's row first: the loss of the lease comes before this, or waits for it."""
    Lease.objects.filter(pk=lease.pk).update(output_state=F("output_state"))
    now = Lease.objects.get(pk=lease.pk)
    results.may_return(now)
    if now.output_verified_at is not None:
        raise Conflict("The output of this attempt is complete.")


def _declare(lease: Lease, files: list[dict]) -> list[dict]:
    folder = lease.shard.folder
    entries = [
        Entry(folder + f["path"], f["size"], f["digest"], executable=f.get("executable", False))
        for f in files
    ]
    output = _output(lease)
    known = dict(output.files.filter(source=lease.code).values_list("path", "size"))
    total = sum((known | {e.path: e.size for e in entries}).values())
    limit = lease.shard.job.output_limit_bytes
    if total > limit:
        raise TooLarge(f"The output has {total} bytes; this job may return {limit}.")
    try:
        plans = staging.declare_files(
            dataset=output,
            entries=entries,
            actor=f"node {lease.node.name}",
            holder=f"lease:{lease.code}",
        )
    except DomainError as error:
        if error.status in (400, 422):
            raise OutputRefused(str(error), **error.data) from error
        raise
    return [_answer(plan, folder) for plan in plans]


def _answer(plan: FilePlan, folder: str) -> dict:
    if plan.file is None:
        raise OutputRefused(plan.message)
    return {
        "path": plan.file.path.removeprefix(folder),
        "state": plan.state,
        "upload": plan.address,
        "offset": plan.upload.offset if plan.upload else plan.file.size,
    }


def complete_output(*, lease: Lease, files: int, byte_count: int, manifest_digest: str) -> None:
    """Accept the output once every file is verified and the manifest is the one that was sent.

    What is compared cannot change before it is accepted: a declaration waits for the lease's row.
    """
    with transaction.atomic():
        jobs.claim(job=lease.shard.job)  # in the order of `accept_output`
        Lease.objects.filter(pk=lease.pk).update(output_state=F("output_state"))
        _compare(lease, files, byte_count, manifest_digest)
        results.accept_output(lease=lease, files=files, byte_count=byte_count, at=db_now())


def _compare(lease: Lease, files: int, byte_count: int, manifest_digest: str) -> None:
    """Raises OutputIncomplete."""
    output, folder = _output(lease), lease.shard.folder
    rows = list(output.files.filter(source=lease.code))
    missing = [f.path.removeprefix(folder) for f in rows if f.state == FileState.EXPECTED]
    if missing:
        raise OutputIncomplete(f"{len(missing)} files are not complete.", send=missing[:1000])
    if (len(rows), sum(f.size for f in rows)) != (files, byte_count):
        raise OutputIncomplete("The files in the store are not those of the manifest.", send=[])
    if _digest(rows, folder) != manifest_digest:
        raise OutputIncomplete("The manifest's digest does not match the files.", send=[])


def _digest(rows: list[File], folder: str) -> str:
    if not rows:
        return hashlib.sha256().hexdigest()
    return staging.manifest_digest(
        (f.digest, f.size, f.executable, f.path.removeprefix(folder)) for f in rows
    )
