"""Teams, their members and limits. Everything a team owns hangs on its row."""

from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.db import models

from portal.base.codes import new_code


class UserManager(BaseUserManager["User"]):
    """Accounts are known by their address; there is no other name to sign in with."""

    def create_user(self, email: str, password: str | None = None, **fields: object) -> "User":
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: object) -> "User":
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, email: str | None) -> "User":
        return self.get(email__iexact=email)


class User(AbstractUser):
    """A person. Staff are operators; everyone else works through a membership."""

    username = None  # type: ignore[assignment]
    email = models.EmailField("email address", unique=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects = UserManager()  # type: ignore[assignment,misc]

    def __str__(self) -> str:
        return self.email


class Team(models.Model):
    """A group that shares datasets, jobs and limits. Null limits mean: none set."""

    code = models.CharField(max_length=16, unique=True, default=new_code, editable=False)
    name = models.CharField(max_length=80, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    quota_bytes = models.BigIntegerField(
        "data at most, in bytes",
        null=True,
        blank=True,
        help_text="Most bytes staged and promised. Empty: no limit.",
    )
    max_gpus_per_job = models.PositiveIntegerField(
        "GPUs of one job at most",
        null=True,
        blank=True,
        help_text="Most GPUs that one job may hold. Empty: no limit.",
    )
    max_hours = models.PositiveIntegerField(
        "hours of one attempt at most",
        null=True,
        blank=True,
        help_text="Most hours that one attempt may run. Empty: no limit.",
    )
    retention_days = models.PositiveIntegerField(
        "days that a new dataset is kept",
        null=True,
        blank=True,
        help_text="Empty: the installation's.",
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def policy_days(self) -> int | None:
        """Days that a dataset is kept whose keeper names none; None where no period was set.

        The team's own word, 0 for "until deleted" among them, goes before the installation's.
        """
        own = self.retention_days
        return (settings.DEFAULT_RETENTION_DAYS if own is None else own) or None

    def note(self, verb: str, *, at: datetime, actor: str, **detail: object) -> None:
        """Add an event row; call it in the transaction of the act."""
        self.events.create(verb=verb, at=at, actor=actor[:254], detail=detail)


class Membership(models.Model):
    """What a person is in a team. An admin of the team may invite and remove members."""

    class Role(models.TextChoices):
        MEMBER = "member"  # declares jobs and datasets, sees all of the team's
        ADMIN = "admin"  # also invites, removes and changes roles

    team = models.ForeignKey(Team, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role, default=Role.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_team"),
            models.CheckConstraint(
                condition=models.Q(role__in=["member", "admin"]), name="membership_role"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def pending(self) -> "InvitationQuerySet":
        """Neither used nor withdrawn; it may have expired."""
        return self.filter(accepted_at=None, withdrawn_at=None)

    def open(self, at: datetime) -> "InvitationQuerySet":
        """Still a way into the team."""
        return self.pending().filter(expires_at__gt=at)


class Invitation(models.Model):
    """A one-time way into a team, sent to an address. Only the token's hash is kept."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=8, choices=Membership.Role, default=Membership.Role.MEMBER)
    token_hash = models.CharField(max_length=64, unique=True)
    invited_by = models.CharField(max_length=254)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team", "email"],
                condition=models.Q(accepted_at=None, withdrawn_at=None),
                name="one_open_invitation_per_address",
            )
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.team}"


class SignInLinkQuerySet(models.QuerySet["SignInLink"]):
    def open(self, at: datetime) -> "SignInLinkQuerySet":
        return self.filter(used_at=None, expires_at__gt=at)


class SignInLink(models.Model):
    """A link that signs one person in once; made on the command line by whoever runs the portal."""

    user = models.ForeignKey(User, models.CASCADE)
    token_hash = models.CharField(max_length=64, unique=True)
    next_path = models.CharField(max_length=200, default="/")
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    objects = SignInLinkQuerySet.as_manager()

    def __str__(self) -> str:
        return f"sign-in of {self.user}"


EVENT_SENTENCES = {
    "created": "made the team",
    "renamed": "renamed the team from {old}",
    "limits_changed": "changed the limits: {limits}",
    "invited": "invited {address} ({role})",
    "invitation_withdrawn": "withdrew the invitation of {address}",
    "joined": "joined ({role})",
    "role_changed": "changed {address} from {old} to {role}",
    "removed": "removed {address}",
    "left": "left the team",
    "deactivated": "deactivated the account of {address}",
    "reactivated": "reactivated the account of {address}",
    "password_reset": "made the password of {address} worthless",
    "connection_create": "added the connection {connection}",
    "connection_change": "changed the connection {connection}",
    "connection_secret": "changed the secret of the connection {connection}",
    "connection_test": "tested the connection {connection}: {result}",
    "connection_delete": "deleted the connection {connection}",
    "folder_lend": "let the team read the server folder {folder}",
    "folder_take": "took the server folder {folder} away from the team",
}


class TeamEvent(models.Model):
    """An act on a team: made, invited, joined, role changed, removed, limits changed."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="events")
    at = models.DateTimeField()
    actor = models.CharField(max_length=254)
    verb = models.CharField(max_length=40)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.verb} by {self.actor}"

    @property
    def sentence(self) -> str:
        """What the actor did, to be read after the actor's address."""
        known = {"address": "", "role": "", "old": "", "limits": ""}
        known |= {"connection": "", "result": "", "folder": ""}
        return EVENT_SENTENCES.get(self.verb, self.verb).format_map(known | self.detail)
