"""Teams and accounts as operators manage them. Tokens and passwords are on no page."""

from django import forms
from django.contrib import admin, messages
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst

from portal.base.site import OperatorAdmin, ReadOnlyInline
from portal.base.unseen import is_blank, unseen_in
from portal.base.words import in_bytes
from portal.teams import accounts, mail, services
from portal.teams.access import actor_of
from portal.teams.models import Invitation, Membership, Team, TeamEvent, User
from portal.teams.reset import mail_reset

LARGEST_COUNT = 2**31 - 1


class TeamForm(forms.ModelForm):
    """Also invites: the first admin when the team is made, another one when nobody is left."""

    invite_admin = forms.EmailField(
        required=False,
        max_length=254,
        help_text="This address is invited as an admin of the team. The link is shown once.",
    )
    quota_bytes = forms.IntegerField(required=False, min_value=0, max_value=2**62)
    max_gpus_per_job = forms.IntegerField(required=False, min_value=0, max_value=LARGEST_COUNT)
    max_hours = forms.IntegerField(required=False, min_value=1, max_value=LARGEST_COUNT)
    retention_days = forms.IntegerField(required=False, min_value=1, max_value=36500)

    class Meta:
        model = Team
        fields = ("name", "quota_bytes", "max_gpus_per_job", "max_hours", "retention_days")

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        for name in services.LIMITS:
            column = getattr(Team, name).field
            self.fields[name].label = capfirst(column.verbose_name)
            self.fields[name].help_text = column.help_text
        self.fields["name"].error_messages["required"] = "Give the team a name."
        self.fields["invite_admin"].label = "Address of another admin"
        self.fields["invite_admin"].error_messages["required"] = "Give the first admin's address."
        if self.instance.pk is None:
            self.fields["invite_admin"].required = True
            self.fields["invite_admin"].label = "First admin's address"

    def clean_name(self) -> str:
        name = self.cleaned_data["name"].strip()
        if found := unseen_in(name):
            raise forms.ValidationError(f"The name holds {found}, which cannot be seen.")
        if is_blank(name):
            raise forms.ValidationError("Give the team a name.")
        return name

    def clean_invite_admin(self) -> str:
        email = self.cleaned_data["invite_admin"].lower()
        if self.instance.pk and self.instance.memberships.filter(user__email=email).exists():
            raise forms.ValidationError(f"{email} is a member of this team already.")
        return email

    def limits(self) -> dict[str, int | None]:
        return {name: self.cleaned_data[name] for name in services.LIMITS}


class MemberInline(ReadOnlyInline):
    model = Membership
    fields = readonly_fields = ("user", "role", "created_at")


class InvitationInline(ReadOnlyInline):
    model = Invitation
    fields = readonly_fields = (
        "email",
        "role",
        "invited_by",
        "expires_at",
        "accepted_at",
        "withdrawn_at",
    )


class TeamEventInline(ReadOnlyInline):
    model = TeamEvent
    verbose_name_plural = "What happened"
    fields = readonly_fields = ("at", "actor", "sentence")
    ordering = ("-at", "-id")


@admin.register(Team)
class TeamAdmin(OperatorAdmin):
    form = TeamForm
    label_field = "name"
    list_display = ("name", "code", "quota", "max_gpus_per_job", "max_hours", "created_at")
    search_fields = ("name", "code")
    fields = ("name", "invite_admin", *services.LIMITS)

    @admin.display(description="data at most", ordering="quota_bytes")
    def quota(self, team: Team) -> str | None:
        return None if team.quota_bytes is None else in_bytes(team.quota_bytes)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)

    def get_inlines(self, request: HttpRequest, obj: Team | None):
        return () if obj is None else (MemberInline, InvitationInline, TeamEventInline)

    def save_model(self, request: HttpRequest, obj: Team, form: TeamForm, change: bool) -> None:
        actor, email = actor_of(request), form.cleaned_data["invite_admin"]
        if change:
            services.change_team(team=obj, name=obj.name, actor=actor, **form.limits())
            if email:
                invited = services.invite(team=obj, email=email, role="admin", actor=actor)
                self._show_link(request, invited)
            return
        made, invited = services.create_team(
            name=obj.name, actor=actor, first_admin=email, **form.limits()
        )
        obj.pk = made.pk
        obj.refresh_from_db()
        self._show_link(request, invited)

    def _show_link(self, request: HttpRequest, invited: services.Invited) -> None:
        request.invited = invited  # type: ignore[attr-defined]

    def response_add(self, request, obj, post_url_continue=None) -> HttpResponse:
        return self._link_page(request, obj)

    def response_change(self, request, obj) -> HttpResponse:
        if hasattr(request, "invited"):
            return self._link_page(request, obj)
        return super().response_change(request, obj)

    def _link_page(self, request: HttpRequest, team: Team) -> HttpResponse:
        """The link stands on the answer to the POST and nowhere else."""
        context = {
            **self.admin_site.each_context(request),
            "title": f"Invitation to {team.name}",
            "invited": request.invited,  # type: ignore[attr-defined]
            "mailed": mail.sends_mail(),
            "back": reverse("admin:teams_team_change", args=[team.pk]),
        }
        response = TemplateResponse(request, "admin/teams/team/invited.html", context)
        response["Cache-Control"] = "no-store, private"
        return response


class UserForm(forms.ModelForm):
    class Meta:
        model = User
        fields = ("is_active", "is_staff")
        labels = {"is_active": "Active", "is_staff": "Operator"}
        help_texts = {
            "is_active": "Off: nobody can sign in with it, and its sessions end.",
            "is_staff": "Operators run nodes, make teams and see this site.",
        }


class UserMembershipInline(ReadOnlyInline):
    model = Membership
    fields = readonly_fields = ("team", "role", "created_at")


@admin.register(User)
class UserAdmin(OperatorAdmin):
    """Accounts begin with an invitation and are deactivated, never deleted: records name them."""

    form = UserForm
    label_field = "email"
    list_display = ("email", "is_active", "is_staff", "last_login", "date_joined")
    list_filter = ("is_active", "is_staff")
    search_fields = ("email",)
    ordering = ("email",)
    inlines = (UserMembershipInline,)
    fields = ("email", "is_active", "is_staff", "last_login", "date_joined")
    readonly_fields = ("email", "last_login", "date_joined")
    change_form_template = "admin/teams/user/change_form.html"

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_view_permission(request)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None):
        """Nobody locks themselves out, so one operator always stays."""
        own = obj is not None and obj.pk == request.user.pk
        return (*self.readonly_fields, "is_active", "is_staff") if own else self.readonly_fields

    def save_model(self, request: HttpRequest, obj: User, form, change: bool) -> None:
        if "is_active" in form.changed_data:
            act = accounts.reactivate if obj.is_active else accounts.deactivate
            act(user=obj, actor=actor_of(request))
        if "is_staff" in form.changed_data:
            accounts.set_operator(user=obj, operator=obj.is_staff)

    def get_urls(self) -> list[URLPattern]:
        reset = path(
            "<int:pk>/reset/", self.admin_site.admin_view(self.reset), name="teams_user_reset"
        )
        return [reset, *super().get_urls()]

    def reset(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Make the password worthless and mail a link; an operator never gets to know one."""
        user = User.objects.filter(pk=pk).first()
        if user is None:
            raise Http404
        back = reverse("admin:teams_user_change", args=[pk])
        if request.method == "POST":
            accounts.reset_password(user=user, actor=actor_of(request))
            mail_reset(request, user)
            messages.success(request, f"The password of {user.email} is worthless now.")
            return redirect(back)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Reset the password of {user.email}",
            "account": user,
            "mailed": mail.sends_mail(),
            "back": back,
        }
        return TemplateResponse(request, "admin/teams/user/reset.html", context)
