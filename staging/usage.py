"""Room: a team's quota and the disk, counting what was promised to uploads in flight.

Every check is an update of the row that it guards, in the transaction of what it allows.

The order of locks in staging, wherever one transaction writes several of these rows: Source, then
Dataset, then the team's TeamUsage, then StoreRoom, then whatever is the team's (Upload, File, Blob)
in any order. Who holds TeamUsage is alone with the rows below it, so nobody waits in a circle.
`lock` takes it where the first write would be to one of those.
"""

from django.db import connection, transaction
from django.db.models import F

from portal.base.errors import NoRoom
from portal.base.rows import execute, fetch, table
from portal.base.words import in_bytes
from portal.teams.models import Team
from staging import store
from staging.models import Dataset, SourceFile, StoreRoom, TeamUsage, Upload


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


def lock(team_id: int, *, dataset: Dataset | None = None) -> None:
    """Be the only one at the team's uploads, files and blobs until the transaction ends.

    `dataset`: one whose row the transaction writes later; it comes first. On SQLite the IMMEDIATE
    transaction is all that already.
    """
    if connection.features.has_select_for_update:
        if dataset is not None:
            own = Dataset.objects.select_for_update(no_key=True).filter(pk=dataset.pk)
            own.values_list("pk").first()
        rows = TeamUsage.objects.select_for_update(no_key=True)
        if not rows.filter(team_id=team_id).values_list("pk").first():
            TeamUsage.objects.get_or_create(team_id=team_id)
            rows.get(team_id=team_id)


def check_room(*, team_id: int, amount: int) -> None:
    """Whether a promise could be made now; none is. Raises NoRoom."""
    with transaction.atomic():
        promise(team_id=team_id, amount=amount)
        transaction.set_rollback(True)


def promise_simply(team_id: int, amount: int) -> bool:
    """As `promise`, in few statements; False, with nothing to keep, where it does not fit."""
    fits = execute(
        f"UPDATE {table(TeamUsage)} SET promised_bytes = promised_bytes + %s"  # noqa: S608
        f" WHERE team_id = %s AND COALESCE((SELECT quota_bytes FROM {table(Team)} WHERE id = %s)"
        " >= stored_bytes + promised_bytes + %s, %s)",
        [amount, team_id, team_id, amount, True],
    )
    one_by_one = fits and execute(
        f"UPDATE {table(StoreRoom)} SET promises = promises + 1 WHERE id = 1",  # noqa: S608
        [],
    )
    return bool(one_by_one) and store.free_bytes() >= _waiting()


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
    uploads, column = table(Upload), connection.ops.quote_name("offset")
    row = fetch(
        f"SELECT (SELECT SUM(promised_bytes) FROM {table(TeamUsage)}),"  # noqa: S608
        f" (SELECT SUM({column}) FROM {uploads} WHERE state = 'open' AND {column} > 0),"
        f" (SELECT SUM(length) FROM {uploads} WHERE concat IN ('partial', 'taken')"
        "   AND state = 'complete'),"
        f" (SELECT SUM(arrived) FROM {table(SourceFile)} WHERE arrived > 0 AND state <> 'done')",
        [],
    )
    promised, begun, parts, synced = (int(n or 0) for n in row or (0, 0, 0, 0))
    return promised - begun - parts - synced


def change_promise(*, team_id: int, amount: int) -> None:
    """As `promise`; a negative amount gives room back."""
    if amount > 0:
        promise(team_id=team_id, amount=amount)
    else:
        settle(team_id=team_id, promised=amount, stored=0)


def settle(*, team_id: int, promised: int, stored: int) -> None:
    """Turn a promise into stored bytes; negative numbers give room back."""
    sql = (
        f"UPDATE {table(TeamUsage)} SET promised_bytes = promised_bytes + %s,"  # noqa: S608
        " stored_bytes = stored_bytes + %s WHERE team_id = %s"
    )
    if not execute(sql, [promised, stored, team_id]):
        TeamUsage.objects.get_or_create(team_id=team_id)
        execute(sql, [promised, stored, team_id])
