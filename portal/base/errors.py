"""Errors that carry a sentence for people. DomainErrorMiddleware turns them into a response."""


class DomainError(Exception):
    """Something a person or program asked for cannot be done; `str(error)` says why.

    `code` names the kind for programs, `status` is the HTTP status, `data` joins the JSON body.
    """

    code = "refused"
    status = 400
    page = "error.html"  # the template that a person sees

    def __init__(self, sentence: str, **data: object) -> None:
        super().__init__(sentence)
        self.data = data

    def as_json(self) -> dict[str, object]:
        """The body of the answer to a program."""
        return {"error": self.code, "message": str(self), **self.data}


class NotFound(DomainError):
    """What was asked for does not exist, or belongs to somebody else."""

    code = "not_found"
    status = 404


class Forbidden(DomainError):
    """A member of the team without the right to do this."""

    code = "forbidden"
    status = 403


class Conflict(DomainError):
    """The row has moved on since it was read."""

    code = "conflict"
    status = 409


class IllegalMove(Conflict):
    """The table of states has no such move."""

    code = "illegal_move"


class Stale(Conflict):
    """The compare-and-swap found another state than was expected."""

    code = "stale"


class CutShort(DomainError):
    """The request's body ended before its announced end."""

    code = "cut_short"


class TooLarge(DomainError):
    """More bytes than a limit allows."""

    code = "too_large"
    status = 413


class NoRoom(DomainError):
    """The disk or the quota cannot hold it."""

    code = "no_room"
    status = 507
