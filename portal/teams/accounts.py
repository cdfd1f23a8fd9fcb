"""What happens to one account: one-time sign-in links, deactivation, worthless passwords."""

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from portal.base.clock import db_now
from portal.base.crypto import hash_token, new_token
from portal.base.errors import Conflict, DomainError, NotFound
from portal.teams.models import SignInLink, Team, User

LONGEST_PATH = 200


def is_local_path(path: str) -> bool:
    """Whether a redirect to it stays on this portal: a path, never another host."""
    printable = path.isprintable() and "\\" not in path
    return printable and path.startswith("/") and url_has_allowed_host_and_scheme(path, None)


def local_path(path: str, default: str = "/") -> str:
    return path if is_local_path(path) else default


def create_link(*, user: User, next_path: str = "/", lifetime: timedelta) -> str:
    """The absolute address that signs `user` in once, within `lifetime`."""
    if not is_local_path(next_path) or len(next_path) > LONGEST_PATH:
        raise DomainError(
            f"The path to go to must start with one / and have at most {LONGEST_PATH} characters."
        )
    if not user.is_active:
        raise Conflict(f"The account of {user.email} is deactivated.")
    token = new_token()
    SignInLink.objects.create(
        user=user,
        token_hash=hash_token(token),
        next_path=next_path,
        expires_at=db_now() + lifetime,
    )
    return settings.PUBLIC_URL + reverse("signin_link", args=[token])


def find_link(token: str) -> SignInLink:
    """The open link with this token; a dead one says what became of it."""
    row = SignInLink.objects.filter(token_hash=hash_token(token)).select_related("user").first()
    if row is None:
        raise NotFound("There is no such sign-in link. It may be incomplete, or was taken back.")
    if row.used_at:
        raise Conflict("This sign-in link was used before. It works once.")
    if row.expires_at <= db_now():
        raise Conflict("This sign-in link has expired.")
    if not row.user.is_active:
        raise Conflict("This account is deactivated.")
    return row


def use_link(*, link: SignInLink) -> User:
    """Use it up. Of two requests at once, one gets the user and the other is refused."""
    at = db_now()
    if not SignInLink.objects.open(at).filter(pk=link.pk).update(used_at=at):
        raise Conflict("This sign-in link was used before, or has expired.")
    return link.user


def drop_links(*, user: User) -> None:
    SignInLink.objects.filter(user=user, used_at=None).delete()


def deactivate(*, user: User, actor: str) -> None:
    """Nobody can sign in as this person any more; sessions end at their next request."""
    with transaction.atomic():
        if not User.objects.filter(pk=user.pk, is_active=True).update(is_active=False):
            return
        user.is_active = False
        drop_links(user=user)
        _tell_teams(user, "deactivated", actor)


def reactivate(*, user: User, actor: str) -> None:
    with transaction.atomic():
        if not User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
            return
        user.is_active = True
        _tell_teams(user, "reactivated", actor)


def set_operator(*, user: User, operator: bool) -> None:
    """Operators are staff; nothing else in the portal looks at Django's permissions."""
    User.objects.filter(pk=user.pk).update(is_staff=operator, is_superuser=operator)
    user.is_staff = user.is_superuser = operator


def reset_password(*, user: User, actor: str) -> None:
    """Make the password worthless, which also ends every session of the account."""
    with transaction.atomic():
        user.set_unusable_password()
        user.save(update_fields=["password"])
        drop_links(user=user)
        _tell_teams(user, "password_reset", actor)


def _tell_teams(user: User, verb: str, actor: str) -> None:
    at = db_now()
    for team in Team.objects.filter(memberships__user=user):
        team.note(verb, at=at, actor=actor, address=user.email)
