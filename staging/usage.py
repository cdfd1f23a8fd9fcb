"""Room: a team's quota and the disk, counting what was promised to uploads in flight.

Every check is an update of the row that it guards, in the transaction of what it allows.
"""

from django.db.models import F, Sum

from portal.base.errors import NoRoom
from portal.base.words import in_bytes
from portal.teams.models import Team
from staging import store
from staging.models import StoreRoom, TeamUsage, Upload
from staging.states import Concat, UploadState


def promise(*, team_id: int, amount: int) -> None:
    """Keep `amount` bytes for uploads about to be created. Raises NoRoom, naming the room left.

    Call it inside the transaction that creates them, before they are created.
    """
    if not amount:
        return
    TeamUsage.objects.get_or_create(team_id=team_id)
    rows = TeamUsage.objects.filter(team_id=team_id)
    quota = Team.objects.values_list("quota_bytes", flat=True).get(pk=team_id)
    if quota is not None:
        rows = rows.filter(promised_bytes__lte=quota - amount - F("stored_bytes"))
    if not rows.update(promised_bytes=F("promised_bytes") + amount):
        raise _over_quota(team_id, quota or 0, amount)
    _check_disk(amount)


def _over_quota(team_id: int, quota: int, amount: int) -> NoRoom:
    usage = TeamUsage.objects.get(team_id=team_id)
    left = max(0, quota - usage.stored_bytes - usage.promised_bytes)
    return NoRoom(
        f"This needs {in_bytes(amount)}; the team's quota of {in_bytes(quota)} has room for "
        f"{in_bytes(left)} more, uploads in flight counted.",
        free=left,
        needed=amount,
    )


def _check_disk(amount: int) -> None:
    """The disk must hold this and what open uploads still wait for.

    The update comes first: it makes promises happen one by one on PostgreSQL too, so two of them
    cannot both be counted against the same free bytes.
    """
    if not StoreRoom.objects.filter(pk=1).update(promises=F("promises") + 1):
        StoreRoom.objects.get_or_create(pk=1, defaults={"promises": 1})
    left = max(0, store.free_bytes() - _waiting() + amount)
    if amount > left:
        raise NoRoom(
            f"This needs {in_bytes(amount)}; the store has room for {in_bytes(left)} more, "
            "uploads in flight counted.",
            free=left,
            needed=amount,
        )


def _waiting() -> int:
    """Bytes promised that have not arrived; those promised by this transaction are among them.

    The sums are over teams and over the few uploads that have begun, not over all that wait.
    """
    promised = TeamUsage.objects.aggregate(n=Sum("promised_bytes", default=0))["n"]
    begun = Upload.objects.filter(state=UploadState.OPEN, offset__gt=0)
    parts = Upload.objects.filter(
        state=UploadState.COMPLETE, concat__in=(Concat.PARTIAL, Concat.TAKEN)
    )
    return (
        promised
        - begun.aggregate(n=Sum("offset", default=0))["n"]
        - parts.aggregate(n=Sum("length", default=0))["n"]
    )


def change_promise(*, team_id: int, amount: int) -> None:
    """As `promise`; a negative amount gives room back."""
    if amount > 0:
        promise(team_id=team_id, amount=amount)
    else:
        settle(team_id=team_id, promised=amount, stored=0)


def settle(*, team_id: int, promised: int, stored: int) -> None:
    """Turn a promise into stored bytes; negative numbers give room back."""
    rows = TeamUsage.objects.filter(team_id=team_id)
    change = {
        "promised_bytes": F("promised_bytes") + promised,
        "stored_bytes": F("stored_bytes") + stored,
    }
    if not rows.update(**change):
        TeamUsage.objects.get_or_create(team_id=team_id)
        rows.update(**change)
