"""Nodes, GPUs, leases and the ledger as operators see them; acts go through nodes.fleet."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Count, Model, Prefetch, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from jobs.states import ShardKind
from nodes import fleet, incidents
from nodes.models import (
    Gpu,
    Incident,
    Lease,
    LeaseEvent,
    LeaseGpu,
    LedgerRow,
    Node,
    NodeEvent,
    using,
)
from nodes.states import HOLDING, NODE_MOVES, IncidentState, NodeState
from portal.base.errors import DomainError
from portal.base.site import OperatorAdmin, ReadOnlyInline
from portal.base.words import in_bytes, in_hms, in_words
from portal.teams.access import actor_of


@dataclass(frozen=True)
class Act:
    """An act on a node: its verb in nodes.fleet, what the button says, what follows from it.

    `to` is the state it leads to; without one it moves nothing.
    """

    verb: Callable[..., None]
    to: NodeState | None
    button: str
    consequence: str


ACTS = {
    "drain": Act(
        fleet.drain,
        NodeState.DRAINING,
        "Drain",
        "The node finishes what it has and takes no new lease. Work that runs there goes on.",
    ),
    "resume": Act(
        fleet.resume,
        NodeState.ONLINE,
        "Resume",
        "The node takes new leases from the next scheduling pass on. This also ends a quarantine, "
        "that of its GPUs too.",
    ),
    "quarantine": Act(
        fleet.quarantine,
        NodeState.QUARANTINED,
        "Quarantine",
        "The node takes no new lease until an operator resumes it. Work that runs there goes on.",
    ),
    "retire": Act(
        fleet.retire,
        NodeState.RETIRED,
        "Retire",
        "The node becomes history: its credential stops working and it can never come back. "
        "Refused while it holds compute for a job.",
    ),
    "revoke": Act(
        fleet.revoke,
        None,
        "Revoke the credential",
        "The node's credential stops working. Its agent stops the work that runs there at its next "
        "poll; those attempts are lost and their pieces are queued again. Use this when the "
        "credential may be in wrong hands.",
    ),
}


def acts_on(node: Node) -> dict[str, Act]:
    """The acts that the node's state allows."""
    following = NODE_MOVES[node.state]
    if node.state == NodeState.RETIRED:
        return {}
    allowed = {verb: act for verb, act in ACTS.items() if act.to is None or act.to in following}
    if node.state == NodeState.PENDING:
        del allowed["resume"]  # only its agent brings it online the first time
    return allowed


class NodeForm(forms.ModelForm):
    class Meta:
        model = Node
        fields = ("name", "simulated")

    def clean_name(self) -> str:
        """A name stands in sentences, file names and log lines."""
        name = self.cleaned_data["name"].strip()
        if not name or not name.isprintable():
            raise ValidationError("A name needs at least one character, and only printable ones.")
        return name


class ActForm(forms.Form):
    reason = forms.CharField(
        max_length=300,
        help_text="Stands in the node's history, and on its page while the act is in force.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


def ago(at: datetime | None) -> str:
    return "never" if at is None else f"{in_words(timezone.now() - at)} ago"


class GpuInline(ReadOnlyInline):
    model = Gpu
    fields = readonly_fields = ("index", "model", "memory", "simulated", "condition", "uuid")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Gpu]:
        return with_holders(super().get_queryset(request))

    @admin.display(description="memory")
    def memory(self, gpu: Gpu) -> str:
        return in_bytes(gpu.memory_bytes)

    @admin.display(description="condition")
    def condition(self, gpu: Gpu) -> str:
        return condition_of(gpu)


def condition_of(gpu: Gpu) -> str:
    """What a GPU can be used for, in words."""
    if gpu.quarantined:
        return f"quarantined: {gpu.reason}" if gpu.reason else "quarantined"
    if not gpu.present:
        return "not in the agent's last report"
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


class NodeEventInline(ReadOnlyInline):
    model = NodeEvent
    verbose_name_plural = "What happened"
    fields = readonly_fields = ("at", "actor", "verb", "from_state", "to_state", "why")
    ordering = ("-at", "-id")

    @admin.display(description="reason")
    def why(self, event: NodeEvent) -> str:
        return event.reason or str(event.detail.get("reason", ""))


class IncidentInline(ReadOnlyInline):
    model = Incident
    verbose_name_plural = "Incidents: attempts that the portal does not know"
    show_change_link = True
    fields = readonly_fields = ("lease", "state", "cause", "job", "phase", "first_seen_at")


@admin.register(Node)
class NodeAdmin(OperatorAdmin):
    label_field = "name"
    form = NodeForm
    list_display = (
        "name",
        "state",
        "reason",
        "heartbeat",
        "gpus_free",
        "gpus_held",
        "gpus_unusable",
        "leases_held",
        "isolation",
        "simulated",
    )
    list_filter = ("state", "simulated")
    search_fields = ("name",)
    inlines = (GpuInline, IncidentInline, NodeEventInline)
    change_form_template = "admin/nodes/node/change_form.html"
    fields = (
        ("name", "simulated"),
        ("state", "reason"),
        ("heartbeat", "last_seen_at", "agent_version"),
        ("credential", "isolation", "isolation_reason"),
        ("cpus", "memory", "disk"),
    )

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)

    def get_fields(self, request: HttpRequest, obj: Node | None = None):
        return NodeForm.Meta.fields if obj is None else self.fields

    def get_inlines(self, request: HttpRequest, obj: Node | None):
        return () if obj is None else self.inlines

    def get_queryset(self, request: HttpRequest) -> QuerySet[Node]:
        there = Q(gpus__present=True)
        usable = there & Q(gpus__usable=True, gpus__quarantined=False)
        held = Q(gpus__leases__until=None, gpus__leases__isnull=False)
        return (
            super()
            .get_queryset(request)
            .annotate(
                free=Count("gpus", usable & ~Q(gpus__in=held_gpus()), distinct=True),
                held=Count("gpus", there & held, distinct=True),
                unusable=Count("gpus", ~usable, distinct=True),
                holding=Count("leases", Q(leases__state__in=HOLDING), distinct=True),
            )
        )

    @admin.display(description="last heartbeat", ordering="last_seen_at")
    def heartbeat(self, node: Node) -> str:
        return ago(node.last_seen_at)

    @admin.display(description="GPUs free")
    def gpus_free(self, node) -> int:
        return node.free

    @admin.display(description="held")
    def gpus_held(self, node) -> int:
        return node.held

    @admin.display(description="unusable")
    def gpus_unusable(self, node) -> int:
        return node.unusable

    @admin.display(description="attempts holding compute")
    def leases_held(self, node) -> int:
        return node.holding

    @admin.display(description="credential")
    def credential(self, node: Node) -> str:
        if node.revoked_at:
            return f"revoked {ago(node.revoked_at)}"
        if node.credential_hash:
            return "in use"
        waiting = node.enrol_expires_at and node.enrol_expires_at > timezone.now()
        return "an enrolment token waits to be used" if waiting else "none"

    @admin.display(description="why no isolation")
    def isolation_reason(self, node: Node) -> str:
        return str(node.facts.get("isolation_reason", ""))

    @admin.display(description="memory")
    def memory(self, node: Node) -> str:
        return in_bytes(node.memory_bytes)

    @admin.display(description="disk for leases")
    def disk(self, node: Node) -> str:
        return in_bytes(node.disk_bytes)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/act/<slug:verb>/", view(self.act), name="nodes_node_act"),
            path("<int:pk>/token/", view(self.token), name="nodes_node_token"),
            *super().get_urls(),
        ]

    def change_view(self, request, object_id, form_url="", extra_context=None) -> HttpResponse:
        node = self.get_object(request, object_id)
        extra = {"acts": acts_on(node) if node else {}, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, extra)

    def save_model(self, request: HttpRequest, obj: Node, form, change: bool) -> None:
        """Only ever reached when adding: the form gives the name, the service makes the node."""
        made, token = fleet.create_node(
            name=obj.name, simulated=obj.simulated, actor=actor_of(request)
        )
        obj.pk = made.pk
        obj.refresh_from_db()
        request.enrol_token = token  # type: ignore[attr-defined]

    def response_add(self, request: HttpRequest, obj: Node, post_url_continue=None) -> HttpResponse:
        return self._show_token(request, obj, request.enrol_token)  # type: ignore[attr-defined]

    def token(self, request: HttpRequest, pk: int) -> HttpResponse:
        """A new one-time token: a page that says what follows, then the token, shown once."""
        node = self._node(pk)
        if request.method == "POST":
            try:
                token = fleet.new_enrolment_token(node=node, actor=actor_of(request))
            except DomainError as error:
                messages.error(request, str(error))
                return redirect("admin:nodes_node_change", pk)
            return self._show_token(request, node, token)
        context = self._context(request, node, f"New enrolment token for {node.name}")
        return TemplateResponse(request, "admin/nodes/node/token_confirm.html", context)

    def act(self, request: HttpRequest, pk: int, verb: str) -> HttpResponse:
        node, act = self._node(pk), ACTS.get(verb)
        if act is None:
            raise Http404
        form = ActForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            try:
                act.verb(node=node, actor=actor_of(request), reason=form.cleaned_data["reason"])
                messages.success(request, f"{act.button}: done for {node.name}.")
            except DomainError as error:
                messages.error(request, str(error))
            return redirect("admin:nodes_node_change", pk)
        context = self._context(request, node, f"{act.button}: {node.name}")
        context |= {"act": act, "form": form, "holding": node.leases.filter(state__in=HOLDING)}
        return TemplateResponse(request, "admin/nodes/node/act.html", context)

    def _show_token(self, request: HttpRequest, node: Node, token: str) -> HttpResponse:
        command = f"E31_ENROL_TOKEN={token} python3 -m nodes.agent --portal {settings.PUBLIC_URL}"
        command += ' --state-dir "$HOME/e31-node"' + " --simulate-gpus 8" * node.simulated
        context = self._context(request, node, f"Enrol {node.name}")
        context |= {"command": command, "until": node.enrol_expires_at}
        response = TemplateResponse(request, "admin/nodes/node/token.html", context)
        response["Cache-Control"] = "no-store, private"
        return response

    def _context(self, request: HttpRequest, node: Node, title: str) -> dict:
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "node": node,
            "opts": self.opts,
            "back": reverse("admin:nodes_node_change", args=[node.pk]),
        }

    def _node(self, pk: int) -> Node:
        node = Node.objects.filter(pk=pk).first()
        if node is None:
            raise Http404
        return node


def held_gpus() -> QuerySet[Gpu]:
    return Gpu.objects.filter(pk__in=LeaseGpu.objects.filter(until=None).values("gpu"))


@admin.register(Gpu)
class GpuAdmin(OperatorAdmin):
    label_field = "uuid"
    list_display = ("uuid", "node", "index", "model", "memory", "simulated", "condition")
    list_filter = ("usable", "quarantined", "present", "simulated")
    list_select_related = ("node",)
    search_fields = ("uuid", "node__name")
    fields = list_display

    def get_queryset(self, request: HttpRequest) -> QuerySet[Gpu]:
        return with_holders(super().get_queryset(request))

    @admin.display(description="memory")
    def memory(self, gpu: Gpu) -> str:
        return in_bytes(gpu.memory_bytes)

    @admin.display(description="condition")
    def condition(self, gpu: Gpu) -> str:
        return condition_of(gpu)


class LeaseEventInline(ReadOnlyInline):
    model = LeaseEvent
    verbose_name_plural = "What happened"
    fields = readonly_fields = ("at", "actor", "verb", "from_state", "to_state", "reason")


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
    list_display = ("code", "job", "node", "state", "reason", "gpu_count", "placed_at", "ended_at")
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
        return in_bytes(lease.memory_bytes)

    @admin.display(description="disk")
    def disk(self, lease: Lease) -> str:
        return in_bytes(lease.disk_bytes)


@dataclass(frozen=True)
class Decision:
    """What an operator may decide of an incident: its verb in nodes.incidents, and what follows."""

    verb: Callable[..., None]
    button: str
    consequence: str


DECISIONS = {
    "adopt": Decision(
        incidents.adopt,
        "Adopt",
        "The attempt becomes its piece's own again: it goes on, is metered from its own begin, and "
        "its output is accepted. Another attempt of the piece that is less far on is fenced; where "
        "the other one is further on, this is refused.",
    ),
    "end": Decision(
        incidents.end,
        "End",
        "The node is told to kill the attempt and to wipe what it wrote. Its GPUs are free again "
        "when the node lists it no more. Nothing of it is counted.",
    ),
}


@admin.register(Incident)
class IncidentAdmin(OperatorAdmin):
    """Attempts that a node has and the portal does not know; decided through nodes.incidents."""

    label_field = "lease"
    list_display = (
        "lease", "node", "state", "cause", "job", "piece", "phase", "seen", "decided_by",
    )  # fmt: skip
    list_filter = ("state", "cause")
    list_select_related = ("node",)
    search_fields = ("lease", "job", "node__name")
    change_form_template = "admin/nodes/incident/change_form.html"
    fields = (
        ("lease", "token", "node"),
        ("state", "cause", "phase"),
        ("job", "piece"),
        "gpus",
        ("first_seen_at", "last_seen_at", "gone_at"),
        ("decided_by", "decided_at", "reason"),
    )

    @admin.display(description="piece")
    def piece(self, incident: Incident) -> str:
        return "finish" if incident.kind == ShardKind.FINISH else str(incident.index or 0)

    @admin.display(description="last listed", ordering="last_seen_at")
    def seen(self, incident: Incident) -> str:
        return ago(incident.last_seen_at)

    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(self.act)
        own = path("<int:pk>/act/<slug:verb>/", act, name="nodes_incident_act")
        return [own, *super().get_urls()]

    def change_view(self, request, object_id, form_url="", extra_context=None) -> HttpResponse:
        incident = self.get_object(request, object_id)
        undecided = incident is not None and incident.state == IncidentState.OPEN
        extra = {"acts": DECISIONS if undecided else {}, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, extra)

    def act(self, request: HttpRequest, pk: int, verb: str) -> HttpResponse:
        """A page that says what follows, then the decision with its reason."""
        incident = Incident.objects.select_related("node").filter(pk=pk).first()
        act = DECISIONS.get(verb)
        if incident is None or act is None:
            raise Http404
        form = ActForm(request.POST if request.method == "POST" else None)
        back = reverse("admin:nodes_incident_change", args=[pk])
        if request.method == "POST" and form.is_valid():
            reason = form.cleaned_data["reason"]
            try:
                act.verb(incident=incident, actor=actor_of(request), reason=reason)
                messages.success(request, f"{act.button}: done for {incident.lease}.")
            except DomainError as error:
                messages.error(request, str(error))
            return redirect(back)
        context = self.admin_site.each_context(request) | {
            "title": f"{act.button}: attempt {incident.lease}",
            "incident": incident,
            "others": incidents.other_attempts(incident),
            "act": act,
            "form": form,
            "opts": self.opts,
            "back": back,
        }
        return TemplateResponse(request, "admin/nodes/incident/act.html", context)


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
