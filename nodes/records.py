"""The record of a finished job: slices of held time, digests, GPU ids; signed, written once."""

import json
from datetime import datetime

from jobs.models import Job, JobRecord, Shard
from jobs.states import Outcome
from nodes.models import Lease, LedgerRow
from portal.base.clock import as_iso
from portal.base.crypto import sign_record
from staging.digests import manifest_digest
from staging.models import Dataset


def canonical(body: dict) -> bytes:
    """The bytes that the signature covers: JSON with sorted keys and no spaces, UTF-8."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def write_record(*, job: Job, at: datetime) -> JobRecord:
    """Sign and keep what the job left. One record per job."""
    body = record_body(job)
    return JobRecord.objects.create(
        job=job, body=body, signature=sign_record(canonical(body)), created_at=at
    )


def record_body(job: Job) -> dict:
    rows = list(
        LedgerRow.objects.filter(lease__shard__job=job).select_related(
            "lease__node", "lease__shard"
        )
    )
    return {
        "job": job.code,
        "team": job.team.name,
        "name": job.name,
        "outcome": job.outcome,
        "reason": job.reason,
        "submitted_at": as_iso(job.submitted_at),
        "staged_at": as_iso(job.queued_at),
        "ended_at": as_iso(job.ended_at),
        "shards": [_shard(shard, rows) for shard in job.shards.order_by("-kind", "index")],
        "inputs": [
            _dataset(i.dataset) | {"files": i.file_count, "bytes": i.byte_count, "mount": i.mount}
            for i in job.inputs.select_related("dataset")
        ],
        "output": _output(job),
        "held_ms": sum(row.held_ms for row in rows),
        "gpu_ms": sum(row.held_ms * row.gpus for row in rows),
        "counted_ms": sum(row.counted_ms for row in rows),
        "counted_gpu_ms": sum(row.counted_ms * row.gpus for row in rows),
    }


def _shard(shard: Shard, rows: list[LedgerRow]) -> dict:
    return {
        "index": shard.index,
        "kind": shard.kind,
        "outcome": shard.outcome,
        "reason": shard.reason,
        "exit_code": shard.exit_code,
        "input_files": shard.input_files,
        "input_bytes": shard.input_bytes,
        "output_files": shard.output_files,
        "output_bytes": shard.output_bytes,
        "leases": [_lease(row) for row in rows if row.lease.shard_id == shard.pk],
    }


def _lease(row: LedgerRow) -> dict:
    lease: Lease = row.lease
    return {
        "lease": lease.code,
        "number": lease.number,
        "node": lease.node.name,
        "isolation": lease.node.isolation,
        "simulated": lease.node.simulated,
        "gpus": [held.gpu.uuid for held in lease.gpus.select_related("gpu")],
        "reason": lease.reason,
        "ready_at": as_iso(lease.ready_at),
        "granted_at": as_iso(lease.granted_at),
        "allocated_at": as_iso(lease.allocated_at),
        "released_at": as_iso(lease.released_at),
        "launch_ms": row.launch_ms,
        "run_ms": row.run_ms,
        "output_ms": row.output_ms,
        "release_ms": row.release_ms,
        "held_ms": row.held_ms,
        "counted_ms": row.counted_ms,
        "uncounted_reason": row.uncounted_reason,
        "evidence": lease.evidence,
    }


def _dataset(dataset: Dataset) -> dict:
    return {
        "dataset": dataset.code,
        "name": dataset.name,
        "manifest_digest": dataset.manifest_digest,
    }


def _output(job: Job) -> dict | None:
    """What came back. The digest is of the files as they were verified on arrival."""
    if job.output is None:
        return None
    files = list(job.output.files.exclude(digest=""))
    shards = job.shards.all()
    digest = manifest_digest((f.digest, f.size, f.executable, f.path) for f in files)
    return _dataset(job.output) | {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "manifest_digest": digest,
        "partial": job.outcome != Outcome.SUCCEEDED,
        "verified": bool(shards) and all(s.outcome == Outcome.SUCCEEDED for s in shards),
    }
