"""Nodes: what they report, and the acts on them, which go through nodes.fleet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Count, Model, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from nodes import fleet
from nodes.admin.acts import ActForm, ago
from nodes.admin.gpus import GpuInline, held_gpus
from nodes.admin.incidents import IncidentInline
from nodes.models import Node, NodeEvent
from nodes.states import HOLDING, NODE_MOVES, NodeState
from portal.base.errors import DomainError
from portal.base.site import EventInline, OperatorAdmin
from portal.base.unseen import is_blank, unseen_in
from portal.base.words import in_gib
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
        error_messages: ClassVar = {"name": {"required": "Give the node a name."}}

    def clean_name(self) -> str:
        """A name stands in sentences, file names and log lines."""
        name = self.cleaned_data["name"].strip()
        if found := unseen_in(name):
            raise ValidationError(f"The name holds {found}, which cannot be seen.")
        if is_blank(name):
            raise ValidationError("A name needs at least one character, and only printable ones.")
        return name


class NodeEventInline(EventInline):
    model = NodeEvent
    fields = readonly_fields = ("at", "actor", "what", "from_state", "to_state", "why")
    ordering = ("-at", "-id")

    @admin.display(description="reason")
    def why(self, event: NodeEvent) -> str:
        return event.reason or str(event.detail.get("reason", ""))


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
    )
    list_filter = ("state", "simulated")
    search_fields = ("name",)
    inlines = (GpuInline, IncidentInline, NodeEventInline)
    change_form_template = "admin/nodes/node/change_form.html"
    fields = (
        ("name", "simulated"),
        ("state", "reason", "leases_held"),
        ("heartbeat", "last_seen_at", "agent_version"),
        ("credential", "isolation", "isolation_reason"),
        ("cpus", "memory", "disk"),
        "gpu_reason",
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
        idle = usable & ~Q(gpus__in=held_gpus())
        held = Q(gpus__leases__until=None, gpus__leases__isnull=False)
        online = Q(state=NodeState.ONLINE)
        return (
            super()
            .get_queryset(request)
            .annotate(
                free=Count("gpus", idle & online, distinct=True),
                held=Count("gpus", there & held, distinct=True),
                unusable=Count("gpus", ~usable | (idle & ~online), distinct=True),
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

    @admin.display(description="why no GPU is seen")
    def gpu_reason(self, node: Node) -> str:
        return str(node.facts.get("gpu_reason", ""))

    @admin.display(description="memory")
    def memory(self, node: Node) -> str:
        return in_gib(node.memory_bytes)

    @admin.display(description="disk for leases")
    def disk(self, node: Node) -> str:
        return in_gib(node.disk_bytes)

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
