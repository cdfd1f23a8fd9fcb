"""The ledger: what each attempt held, and what of it counts."""

from django.contrib import admin

from nodes.models import LedgerRow
from portal.base.site import OperatorAdmin
from portal.base.words import in_hms


@admin.register(LedgerRow)
class LedgerAdmin(OperatorAdmin):
    list_display = ("lease", "team", "gpus", "allocated_at", "held", "counted", "uncounted_reason")
    list_filter = ("uncounted_reason",)
    list_select_related = ("lease__shard__job__team",)
    search_fields = ("lease__code", "lease__shard__job__code")
    fields = (
        ("lease", "team", "gpus"),
        ("allocated_at", "ended_at"),
        ("launch_ms", "run_ms", "output_ms", "release_ms"),
        ("held_ms", "counted_ms", "uncounted_reason"),
    )

    @admin.display(description="team")
    def team(self, row: LedgerRow) -> str:
        return row.lease.shard.job.team.name

    @admin.display(description="held", ordering="held_ms")
    def held(self, row: LedgerRow) -> str:
        return in_hms(row.held_ms)

    @admin.display(description="counted", ordering="counted_ms")
    def counted(self, row: LedgerRow) -> str:
        return in_hms(row.counted_ms)
