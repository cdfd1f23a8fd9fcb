"""Whether any node that this portal knows could ever run a request, and if not, which limit."""

from collections.abc import Callable, Sequence

from jobs.models import Job
from nodes.models import Node
from nodes.states import NodeState

MIB = 2**20


def problem(job: Job, input_bytes: int) -> str:
    """The sentence that names the limit and both numbers; empty where some node would do.

    `input_bytes` are those of the largest shard: its part of the inputs must lie on the same disk
    as what it writes. A portal that no node has joined refuses nothing: the job waits for the
    first one.
    """
    nodes = list(
        Node.objects.exclude(state__in=[NodeState.RETIRED, NodeState.PENDING]).prefetch_related(
            "gpus"
        )
    )
    disk = disk_needed(job, input_bytes)
    if not nodes or any(_fits(node, job, disk) for node in nodes):
        return ""
    return (
        _largest_gpu(nodes, job)
        or _largest(nodes, job)
        or _disk(nodes, input_bytes, disk)
        or (
            "No node of this portal has all of this together: "
            f"{job.gpus} GPUs, {job.cpus} CPUs, {_mb(job.memory_bytes)} of memory "
            f"and {_mb(disk)} of disk."
        )
    )


def disk_needed(job: Job, input_bytes: int) -> int:
    """Bytes of node disk that a shard takes: its inputs, the code as it is cached and as it is
    run, scratch and output."""
    code = job.code_dataset.byte_count if job.code_dataset else 0
    return input_bytes + 2 * code + job.scratch_bytes + job.output_limit_bytes


def _gpus(node: Node, job: Job) -> int:
    return sum(1 for g in node.gpus.all() if g.present and g.memory_bytes >= job.gpu_memory_bytes)


def _fits(node: Node, job: Job, disk: int) -> bool:
    return (
        _gpus(node, job) >= max(job.gpus, job.finish_gpus if job.finish_command else 0)
        and node.cpus >= job.cpus
        and node.memory_bytes >= job.memory_bytes
        and node.disk_bytes >= disk
    )


def _largest_gpu(nodes: Sequence[Node], job: Job) -> str:
    most = max(_gpus(node, job) for node in nodes)
    wanted = max(job.gpus, job.finish_gpus if job.finish_command else 0)
    if most >= wanted:
        return ""
    kind = f" with {_mb(job.gpu_memory_bytes)} of memory" if job.gpu_memory_bytes else ""
    gpus = f"{wanted} GPU" + "s" * (wanted > 1)
    memory = max((g.memory_bytes for n in nodes for g in n.gpus.all() if g.present), default=0)
    if memory < job.gpu_memory_bytes:
        return f"A piece needs {gpus}{kind}; the largest GPU has {_mb(memory)}."
    return f"A piece needs {gpus}{kind} on one node; the largest node has {most}."


def _largest(nodes: Sequence[Node], job: Job) -> str:
    wants: list[tuple[str, int, int, Callable[[int], str]]] = [
        ("CPUs", job.cpus, max(n.cpus for n in nodes), str),
        ("of memory", job.memory_bytes, max(n.memory_bytes for n in nodes), _mb),
    ]
    for noun, wanted, most, text in wants:
        if wanted > most:
            return f"A piece needs {text(wanted)} {noun}; the largest node has {text(most)}."
    return ""


def _disk(nodes: Sequence[Node], input_bytes: int, disk: int) -> str:
    most = max(node.disk_bytes for node in nodes)
    if disk <= most:
        return ""
    data = f", {_mb(input_bytes)} of it for its data" if input_bytes else ""
    return f"A piece needs {_mb(disk)} of disk{data}; the largest node has {_mb(most)}."


def _mb(count: int) -> str:
    return f"{count // MIB:,} MiB"
