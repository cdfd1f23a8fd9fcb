"""Jobs as operators see them: sizes, states and hours. Names, work and variables are the team's."""

from django.contrib import admin

from jobs.models import Job, JobEvent, Shard
from portal.base.site import EventInline, OperatorAdmin, ReadOnlyInline
from portal.base.words import in_gib


class ShardInline(ReadOnlyInline):
    model = Shard
    verbose_name, verbose_name_plural = "piece", "pieces"
    fields = readonly_fields = (
        "index",
        "kind",
        "state",
        "outcome",
        "attempts",
        "faults",
        "ended_at",
    )
    max_num = 0

    def get_queryset(self, request):
        """A job may have 10,000 pieces; the page shows those that need a look."""
        return super().get_queryset(request).exclude(outcome="succeeded")


class JobEventInline(EventInline):
    model = JobEvent
    fields = readonly_fields = ("at", "what", "from_state", "to_state", "reason")


@admin.register(Job)
class JobAdmin(OperatorAdmin):
    label_field = "code"
    list_display = (
        "code",
        "team",
        "state",
        "outcome",
        "reason",
        "submitted_at",
        "ended_at",
    )
    list_filter = ("state", "outcome", "reason", "team")
    list_select_related = ("team",)
    search_fields = ("code", "team__name")
    inlines = (ShardInline, JobEventInline)
    fields = (
        ("code", "team"),
        ("state", "outcome", "reason"),
        ("gpus", "gpu_memory", "cpus", "memory", "scratch"),
        ("time_limit", "shard_count", "parallel", "needed_by"),
        ("submitted_at", "queued_at", "active_at", "cancel_asked_at", "ended_at"),
    )

    @admin.display(description="least GPU memory")
    def gpu_memory(self, job: Job) -> str:
        return in_gib(job.gpu_memory_bytes)

    @admin.display(description="memory")
    def memory(self, job: Job) -> str:
        return in_gib(job.memory_bytes)

    @admin.display(description="scratch disk")
    def scratch(self, job: Job) -> str:
        return in_gib(job.scratch_bytes)
