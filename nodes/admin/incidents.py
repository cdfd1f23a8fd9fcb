"""Attempts that a node has and the portal does not know, and what an operator decides of them."""

from collections.abc import Callable
from dataclasses import dataclass

from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from jobs.states import ShardKind
from nodes import incidents
from nodes.admin.acts import ActForm, ago
from nodes.models import Incident
from nodes.states import IncidentState
from portal.base.errors import DomainError
from portal.base.site import OperatorAdmin, ReadOnlyInline
from portal.teams.access import actor_of


class IncidentInline(ReadOnlyInline):
    model = Incident
    verbose_name_plural = "Incidents: attempts that the portal does not know"
    show_change_link = True
    fields = readonly_fields = ("lease", "state", "cause", "job", "phase", "first_seen_at")


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
    list_display = ("lease", "node", "state", "cause", "job", "seen")
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
