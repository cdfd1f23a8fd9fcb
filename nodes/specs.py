"""What a lease's agent is told to run. The only answer that carries a secret's plain value."""

from django.conf import settings

from jobs.models import Job
from jobs.states import ShardKind
from nodes.manifest import lease_totals
from nodes.models import Lease

MOST_PROCESSES = 4096  # and threads: what loads data for eight GPUs starts hundreds of each


def lease_spec(lease: Lease) -> dict:
    shard = lease.shard
    job: Job = shard.job
    finish = shard.kind == ShardKind.FINISH
    files, size = lease_totals(lease)
    return {
        "lease": lease.code,
        "token": lease.token,
        "team": job.team.code,
        "job": job.code,
        "kind": shard.kind,
        "index": shard.index,
        "count": job.shard_count,
        "attempt": lease.number,
        "work": _finish(job) if finish else _work(job),
        "variables": {v.name: v.value_for_node() for v in job.variables.all()},
        "limits": _limits(lease, job),
        "gpus": lease.gpu_count,
        "disk_bytes": lease.disk_bytes,
        "outputs": [{"pattern": "**", "optional": True}] if finish else _outputs(job),
        "files": files,
        "bytes": size,
    }


def _work(job: Job) -> dict:
    return {
        "kind": job.work_kind,
        "language": job.language,
        "script": job.script,
        "command": job.command,
    }


def _finish(job: Job) -> dict:
    return {"kind": "command", "language": "bash", "script": "", "command": job.finish_command}


def _outputs(job: Job) -> list[dict]:
    return [{"pattern": p.pattern, "optional": p.optional} for p in job.output_paths.all()]


def _limits(lease: Lease, job: Job) -> dict:
    return {
        "seconds": int(lease.time_limit.total_seconds()),
        "term_margin_seconds": int(settings.TERM_MARGIN.total_seconds()),
        "output_window_seconds": int(lease.output_window.total_seconds()),
        "cpus": lease.cpus,
        "memory_bytes": lease.memory_bytes,
        "scratch_bytes": job.scratch_bytes,
        "output_bytes": job.output_limit_bytes,
        "log_bytes": settings.LARGEST_LOG_BYTES,
        "processes": MOST_PROCESSES,
    }
