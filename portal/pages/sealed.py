"""What is said of output that waits on a node after its compute was released."""

from datetime import UTC

from jobs.models import Job
from nodes.models import Lease

MOST_NAMED = 3
UNMETERED = "The compute is released and nothing is metered."
BY_ITSELF = "It is sent by itself as soon as it is taken."


def sealed_sentence(job: Job) -> str:
    """Where the output waits, since when and why."""
    leases = list(
        Lease.objects.awaited()
        .filter(shard__job=job)
        .select_related("node")
        .order_by("releasing_at", "pk")
    )
    if not leases:
        return f"{UNMETERED} The output is still on its way."
    first = leases[0]
    since = (
        f"since {first.releasing_at.astimezone(UTC):%d %b, %H:%M} UTC" if first.releasing_at else ""
    )
    whose = (
        "The output waits" if len(leases) == 1 else f"The output of {len(leases):,} pieces waits"
    )
    nodes = sorted({lease.node.name for lease in leases})
    more = f" and {len(nodes) - MOST_NAMED:,} more" if len(nodes) > MOST_NAMED else ""
    noun = "node" if len(nodes) == 1 else "nodes"
    where = f"{noun} {', '.join(nodes[:MOST_NAMED])}{more}"
    why = " ".join(dict.fromkeys(lease.get_output_waits_display() for lease in leases))
    return f"{UNMETERED} {whose} sealed on {where} {since}: {why[0].lower()}{why[1:]} {BY_ITSELF}"
