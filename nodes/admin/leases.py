"""Attempts: facts of the node and the meter."""

from django.contrib import admin

from nodes.models import Lease, LeaseEvent
from portal.base.site import EventInline, OperatorAdmin
from portal.base.words import in_gib


class LeaseEventInline(EventInline):
    model = LeaseEvent
    fields = readonly_fields = ("at", "actor", "what", "from_state", "to_state", "reason")


STEPS = (
    "placed_at",
    "ready_at",
    "granted_at",
    "allocated_at",
    "running_at",
    "returning_at",
    "releasing_at",
    "released_at",
    "ended_at",
)


@admin.register(Lease)
class LeaseAdmin(OperatorAdmin):
    """Facts of the node and the meter. What the work said of itself is the team's."""

    label_field = "code"
    list_display = ("code", "job", "node", "state", "reason", "placed_at", "ended_at")
    list_filter = ("state", "reason")
    list_select_related = ("node", "shard__job")
    search_fields = ("code", "node__name", "shard__job__code")
    inlines = (LeaseEventInline,)
    fields = (
        ("code", "job", "node"),
        ("state", "reason"),
        ("gpu_count", "cpus", "memory", "disk"),
        ("time_limit", "output_window"),
        STEPS,
        ("output_state", "evidence", "in_doubt"),
    )

    @admin.display(description="job")
    def job(self, lease: Lease) -> str:
        return lease.shard.job.code

    @admin.display(description="memory")
    def memory(self, lease: Lease) -> str:
        return in_gib(lease.memory_bytes)

    @admin.display(description="disk")
    def disk(self, lease: Lease) -> str:
        return in_gib(lease.disk_bytes)
