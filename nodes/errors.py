"""What an agent's request about a lease can be answered with instead."""

from portal.base.errors import Conflict, DomainError


class StaleLease(Conflict):
    """The token is not the lease's present one, or the lease has ended: the agent drops it."""

    code = "stale_lease"


class LeaseInDoubt(DomainError):
    """The node was silent for too long; its next poll decides whether this attempt is kept.

    A 5xx, so that an agent goes on and asks again.
    """

    code = "lease_in_doubt"
    status = 503
