"""Datasets as operators see them: sizes, states and dates. Names and files are the team's."""

from django.contrib import admin

from portal.base.site import EventInline, OperatorAdmin
from portal.base.words import in_bytes
from staging.models import Dataset, DatasetEvent
from staging.sync import admin as sync_admin  # noqa: F401  Django finds it through here


class DatasetEventInline(EventInline):
    model = DatasetEvent
    fields = readonly_fields = ("at", "what", "from_state", "to_state", "reason")


@admin.register(Dataset)
class DatasetAdmin(OperatorAdmin):
    label_field = "code"
    list_display = (
        "code",
        "team",
        "kind",
        "state",
        "reason",
        "file_count",
        "size",
        "created_at",
    )
    list_filter = ("state", "kind", "reason", "team")
    list_select_related = ("team",)
    search_fields = ("code", "team__name")
    inlines = (DatasetEventInline,)
    fields = (
        ("code", "team", "kind"),
        ("state", "reason", "partial"),
        ("file_count", "size", "holds"),
        ("created_at", "sealed_at", "staged_at"),
        ("expires_at", "purged_at", "purged"),
    )

    @admin.display(description="bytes", ordering="byte_count")
    def size(self, dataset: Dataset) -> str:
        return in_bytes(dataset.byte_count)

    @admin.display(description="bytes deleted")
    def purged(self, dataset: Dataset) -> str:
        return in_bytes(dataset.purged_bytes)
