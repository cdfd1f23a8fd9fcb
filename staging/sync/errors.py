"""What can go wrong with a source, by how far it reaches. `str(error)` is a sentence for people."""

from portal.base.errors import DomainError


class Trouble(DomainError):
    """This part did not come; it is tried again after a while."""

    code = "trouble"
    status = 502


class SourceAway(Trouble):
    """The whole source does not answer: no part of it is tried for a while."""

    code = "source_away"


class SourceRefuses(SourceAway):
    """The source answers and refuses the connection itself: a person must mend it."""

    code = "source_refuses"


class Changed(Trouble):
    """This file is no longer what was listed."""

    code = "changed"


class Unreadable(Trouble):
    """This file cannot be had, however often it is tried."""

    code = "unreadable"


class AddressRefused(SourceRefuses):
    """The address is none that the portal connects to."""

    code = "address_refused"


class Interrupted(Exception):
    """The pump's time is over in the middle of a part."""
