"""The ledger: what each attempt held, and what of it counts."""

from django.contrib import admin

from nodes.models import LedgerRow
from portal.base.site import OperatorAdmin
from portal.base.words import in_hms_exact


@admin.register(LedgerRow)
class LedgerAdmin(OperatorAdmin):
    list_display = ("lease", "team", "gpus", "allocated_at", "held", "counted", "uncounted_reason")
    list_filter = ("uncounted_reason",)
    list_select_related = ("lease__shard__job__team",)
    search_fields = ("lease__code", "lease__shard__job__code")
    fields = (
        ("lease", "team", "gpus"),
        ("allocated_at", "ended_at"),
        ("launch", "run", "output", "release"),
        ("held", "counted", "uncounted_reason"),
    )

    @admin.display(description="team")
    def team(self, row: LedgerRow) -> str:
        return row.lease.shard.job.team.name

    @admin.display(description="launch")
    def launch(self, row: LedgerRow) -> str:
        return in_hms_exact(row.launch_ms)

    @admin.display(description="run")
    def run(self, row: LedgerRow) -> str:
        return in_hms_exact(row.run_ms)

    @admin.display(description="output")
    def output(self, row: LedgerRow) -> str:
        return in_hms_exact(row.output_ms)

    @admin.display(description="release")
    def release(self, row: LedgerRow) -> str:
        return in_hms_exact(row.release_ms)

    @admin.display(description="held", ordering="held_ms")
    def held(self, row: LedgerRow) -> str:
        return in_hms_exact(row.held_ms)

    @admin.display(description="counted", ordering="counted_ms")
    def counted(self, row: LedgerRow) -> str:
        return in_hms_exact(row.counted_ms)
