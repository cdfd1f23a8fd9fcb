"""The one door to the ledger of held time."""

from datetime import datetime

from nodes import meter
from nodes.models import Lease, LedgerRow


def write_ledger(*, lease: Lease, at: datetime) -> LedgerRow | None:
    """The one ledger row of a lease that was ever allocated, when its fate is known."""
    if lease.allocated_at is None:
        return None
    held = meter.slices(lease, at)
    charged, reason = meter.counted(lease, at)
    return LedgerRow.objects.create(
        lease=lease,
        gpus=lease.gpu_count,
        allocated_at=lease.allocated_at,
        ended_at=meter.held_until(lease, at),
        launch_ms=held.launch_ms,
        run_ms=held.run_ms,
        output_ms=held.output_ms,
        release_ms=held.release_ms,
        held_ms=held.held_ms,
        counted_ms=charged,
        uncounted_reason=reason,
        created_at=at,
    )
