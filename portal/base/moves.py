"""The one way a state changes: compare-and-swap, with its event in the same transaction."""

from collections.abc import Mapping
from datetime import datetime

from django.db import models, transaction

from portal.base.errors import IllegalMove, Stale

type MoveTable = dict[str, frozenset[str]]

STATE_LENGTH = 16
REASON_LENGTH = 40


class Event(models.Model):
    """Who moved what, when, from where, to where and why. Concrete classes add `subject`."""

    at = models.DateTimeField()
    actor = models.CharField(max_length=254, help_text="A person's address, or a part's name.")
    verb = models.CharField(max_length=40)
    from_state = models.CharField(max_length=STATE_LENGTH, blank=True)
    to_state = models.CharField(max_length=STATE_LENGTH, blank=True)
    reason = models.CharField(max_length=REASON_LENGTH, blank=True)
    detail = models.JSONField(default=dict, blank=True)

    class Meta:
        abstract = True
        ordering = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.verb} by {self.actor}"


class Stateful(models.Model):
    """A row with a state. Subclasses set MOVES (their table) and have `events`."""

    MOVES: MoveTable = {}
    state = models.CharField(max_length=STATE_LENGTH)  # subclasses add choices and the default

    class Meta:
        abstract = True

    def note(
        self,
        verb: str,
        *,
        at: datetime,
        actor: str,
        to: str = "",
        reason: str = "",
        detail: dict | None = None,
        frm: str | None = None,
    ) -> None:
        """Add an event row without moving."""
        state = self.state if frm is None else frm
        self.events.create(  # type: ignore[attr-defined]
            at=at,
            actor=actor[:254],
            verb=verb,
            from_state=state,
            to_state=to or state,
            reason=reason,
            detail=detail or {},
        )


def move(
    row: Stateful,
    to: str,
    verb: str,
    *,
    at: datetime,
    actor: str,
    reason: str = "",
    detail: dict | None = None,
    changes: Mapping[str, object] | None = None,
) -> None:
    """Move `row` from the state it was read in to `to`, write `changes`, add the event.

    Raises IllegalMove when the table has no such move, Stale when another transaction was first;
    nothing is written then. On success the instance carries the new values.
    """
    values = changes or {}
    frm: str = row.state
    noun = row._meta.verbose_name
    if to not in row.MOVES[frm]:
        raise IllegalMove(f"This {noun} is {frm}; it cannot become {to}.")
    with transaction.atomic():
        swapped = type(row)._default_manager.filter(pk=row.pk, state=frm).update(state=to, **values)
        if not swapped:
            raise Stale(f"This {noun} is no longer {frm}.")
        row.note(verb, at=at, actor=actor, to=to, reason=reason, detail=detail)
    for name, value in {"state": to, **values}.items():
        setattr(row, name, value)
