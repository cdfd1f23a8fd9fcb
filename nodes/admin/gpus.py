"""GPUs: what each can be used for, and what holds it."""

from django.contrib import admin
from django.contrib.admin.options import BaseModelAdmin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest

from nodes.models import Gpu, Incident, LeaseGpu, using
from portal.base.site import OperatorAdmin, ReadOnlyInline
from portal.base.words import in_gib


def condition_of(gpu: Gpu) -> str:
    """What a GPU can be used for, in words."""
    if gpu.quarantined:
        return f"quarantined: {gpu.reason}" if gpu.reason else "quarantined"
    if not gpu.present:
        reason = f": {gpu.reason}" if gpu.reason else ""
        return f"not in the agent's last report{reason}"
    if not gpu.usable:
        return f"not usable: {gpu.reason}" if gpu.reason else "not usable"
    if sentence := using(gpu.node.incidents.all(), gpu.uuid):
        return f"not usable: {sentence}"
    holder = next((h for h in gpu.leases.all() if h.until is None), None)
    return f"held by attempt {holder.lease.code}" if holder else "free"


def with_holders(gpus: QuerySet[Gpu]) -> QuerySet[Gpu]:
    holders = LeaseGpu.objects.filter(until=None).select_related("lease")
    incidents_there = Prefetch("node__incidents", Incident.objects.blocking())
    gpus = gpus.select_related("node")
    return gpus.prefetch_related(Prefetch("leases", holders), incidents_there)


def held_gpus() -> QuerySet[Gpu]:
    return Gpu.objects.filter(pk__in=LeaseGpu.objects.filter(until=None).values("gpu"))


class GpuWords(BaseModelAdmin):
    """What a list of GPUs and a node's own table of them say of each."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Gpu]:
        return with_holders(super().get_queryset(request))

    @admin.display(description="memory")
    def memory(self, gpu: Gpu) -> str:
        return in_gib(gpu.memory_bytes)

    @admin.display(description="condition")
    def condition(self, gpu: Gpu) -> str:
        return condition_of(gpu)


class GpuInline(GpuWords, ReadOnlyInline):
    model = Gpu
    fields = readonly_fields = ("index", "model", "memory", "simulated", "condition", "uuid")


@admin.register(Gpu)
class GpuAdmin(GpuWords, OperatorAdmin):
    label_field = "uuid"
    list_display = ("uuid", "node", "model", "memory", "condition")
    list_filter = ("usable", "quarantined", "present", "simulated")
    list_select_related = ("node",)
    search_fields = ("uuid", "node__name")
    fields = ("uuid", "node", "index", "model", "memory", "simulated", "condition")
