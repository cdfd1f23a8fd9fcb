"""The operators' admin site: every staff member may see it, and acts go through services.

Django's own permissions are not used: whoever is staff is an operator. What a page lets an
operator read or do is said by each model's admin, and reading is limited to facts that are no
content of a team (no names of files, no scripts, variables or logs).
"""

from collections.abc import Callable, Sequence
from typing import Any

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

# Registered by the packages that bring them; changing them here would go past our services.
NOT_OURS = {"auth.group", "account.emailaddress", "account.emailconfirmation"}


class OperatorSite(admin.AdminSite):
    """Signs in through allauth, so that its rate limits hold here too."""

    site_header = site_title = "E31 operators"
    index_title = "This installation"
    site_url = "/"
    enable_nav_sidebar = True

    def register(self, model_or_iterable, admin_class=None, **options) -> None:
        models = (
            model_or_iterable if isinstance(model_or_iterable, Sequence) else [model_or_iterable]
        )
        ours = [m for m in models if m._meta.label_lower not in NOT_OURS]
        super().register(ours, admin_class, **options)

    def login(self, request: HttpRequest, extra_context=None) -> HttpResponse:
        return secure_admin_login(super().login)(request, extra_context)

    def password_change(self, request: HttpRequest, extra_context=None):
        return redirect("account_change_password")


class SeeOnly:
    """The rights of an operator: see, and nothing else unless a subclass says so."""

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class OperatorAdmin(SeeOnly, admin.ModelAdmin):
    """A table that operators see.

    `label_field` is the column that stands for a row wherever its name would.
    """

    label_field = "pk"
    actions: Sequence[str | Callable] | None = None
    list_per_page = 100
    show_full_result_count = False

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Filters of the page only: `?script__startswith=` would let an operator guess content."""
        named = [str(item) for item in self.list_filter]
        return any(lookup == name or lookup.startswith(f"{name}__") for name in named)

    def change_view(self, request, object_id, form_url="", extra_context=None) -> HttpResponse:
        response = super().change_view(request, object_id, form_url, extra_context)
        context: dict[str, Any] | None = getattr(response, "context_data", None)
        if context and context.get("original") is not None:
            label = Label(context["original"], self.label_field)
            context.update(original=label, subtitle=str(label))
        return response

    def history_view(self, request, object_id, extra_context=None) -> HttpResponse:
        """Acts are events of the row, shown on its page; the admin keeps no history beside."""
        meta = self.opts
        return redirect(f"admin:{meta.app_label}_{meta.model_name}_change", object_id)


class Label:
    """A row as the admin's breadcrumbs and title may name it."""

    def __init__(self, row: Model, field: str) -> None:
        self.pk = row.pk
        self.text = str(getattr(row, field))

    def __str__(self) -> str:
        return self.text


class ReadOnlyInline(SeeOnly, admin.TabularInline):
    """Rows of another table beside the one that is looked at."""

    template = "admin/read_only_rows.html"
    extra = 0
    can_delete = False
    show_change_link = False
    view_on_site = False


class EventInline(ReadOnlyInline):
    """What happened to the row that is looked at; `what` is the verb of the event in words."""

    verbose_name_plural = "What happened"

    @admin.display(description="what")
    def what(self, event: Any) -> str:
        return event.verb.replace("_", " ")
