"""Sync as operators manage it: server folders, and connections on the operator's own role.

Of the connections that teams make, operators see where they lead and whether they work.
"""

from typing import ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from portal.base.errors import DomainError
from portal.base.site import OperatorAdmin
from portal.teams.access import actor_of
from portal.teams.models import Team
from staging.models import Connection, ServerFolder
from staging.sync import connections, serverfolders
from staging.sync.states import Access


class ServerFolderForm(forms.ModelForm):
    teams = forms.ModelMultipleChoiceField(
        Team.objects.all(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Teams whose members may sync from it.",
    )

    class Meta:
        model = ServerFolder
        fields = ("name", "path", "teams")
        error_messages: ClassVar = {
            "name": {"required": "Give the folder a name."},
            "path": {"required": "Give the folder's path on the server."},
        }

    def clean_path(self) -> str:
        try:
            return serverfolders.checked_path(self.cleaned_data["path"])
        except DomainError as error:
            raise forms.ValidationError(str(error)) from error


class _Made(OperatorAdmin):
    """Rows that operators make; each act goes through a verb."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)

    def save_related(self, request, form, formsets, change) -> None:
        """The verb wrote what belongs to it."""


@admin.register(ServerFolder)
class ServerFolderAdmin(_Made):
    form = ServerFolderForm
    label_field = "name"
    list_display = ("name", "path", "created_at")
    search_fields = ("name",)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)

    def save_model(self, request: HttpRequest, obj: ServerFolder, form, change: bool) -> None:
        serverfolders.save_folder(
            folder=obj,
            name=obj.name,
            path=obj.path,
            teams=form.cleaned_data["teams"],
            actor=actor_of(request),
        )


class RoleConnectionForm(forms.ModelForm):
    class Meta:
        model = Connection
        fields = ("team", "name", "endpoint", "region", "bucket", "prefix", "path_style")
        error_messages: ClassVar = {
            "team": {"required": "Choose the team that reads through it."},
            "name": {"required": "Give the connection a name."},
            "endpoint": {"required": "Give the address of the store."},
            "region": {"required": "Give the store's region."},
            "bucket": {"required": "Give the name of the bucket."},
        }
        help_texts = {"prefix": "The most that the team may read: a folder of the bucket."}

    def clean(self) -> dict:
        found = super().clean() or {}
        try:
            if found.get("endpoint"):
                found["endpoint"] = connections.endpoint_of(found["endpoint"])
            if not connections.folder_prefix(found.get("prefix") or ""):
                raise DomainError("The operator's role is lent for a prefix only.")
        except DomainError as error:
            raise forms.ValidationError(str(error)) from error
        return found


@admin.register(Connection)
class ConnectionAdmin(_Made):
    """An operator adds connections on the operator's own role; none is changed afterwards."""

    form = RoleConnectionForm
    label_field = "code"
    list_display = ("code", "team", "access", "endpoint", "created_at", "tested_at", "test_code")
    list_filter = ("access", "team")
    list_select_related = ("team",)
    fields = ("team", "name", "endpoint", "region", "bucket", "prefix", "path_style")

    def get_queryset(self, request: HttpRequest):
        return super().get_queryset(request).filter(deleted_at=None)

    def get_fields(self, request: HttpRequest, obj: Connection | None = None):
        """What a team calls its connection and its bucket is the team's."""
        if obj is None or obj.access == Access.ROLE:
            return self.fields
        return ("code", "team", "access", "endpoint", "region", "created_at", "test_code")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        own = isinstance(obj, Connection) and obj.access == Access.ROLE
        return own and self.has_view_permission(request)

    def save_model(self, request: HttpRequest, obj: Connection, form, change: bool) -> None:
        found = form.cleaned_data
        made = connections.create_connection(
            team=found["team"],
            name=found["name"],
            endpoint=found["endpoint"],
            region=found["region"],
            bucket=found["bucket"],
            prefix=found["prefix"],
            path_style=found["path_style"],
            access=Access.ROLE,
            actor=actor_of(request),
            staff=True,
        )
        obj.pk = made.pk
        obj.refresh_from_db()

    def get_deleted_objects(self, objs, request: HttpRequest):
        """The row stays, without its secret; nothing that hangs on it goes."""
        return [str(obj.code) for obj in objs], {}, set(), []

    def delete_model(self, request: HttpRequest, obj: Connection) -> None:
        connections.delete_connection(connection=obj, actor=actor_of(request), staff=True)
