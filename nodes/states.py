"""The states of leases and nodes, and the reasons that go with them."""

from django.db import models

from portal.base.moves import MoveTable


class LeaseState(models.TextChoices):
    PLACED = "placed"  # the node fetches; disk is reserved, no GPU
    READY = "ready"  # everything is on the node; waits for named GPUs
    GRANTED = "granted"  # named GPUs are reserved; the meter has not started
    ALLOCATED = "allocated"  # the agent acknowledged: the meter runs
    RUNNING = "running"  # the work's first instruction was started
    RETURNING = "returning"  # the work has ended; its output is on its way, metered
    RELEASING = "releasing"  # the node removes what is left and looks for evidence
    RELEASED = "released"  # the node proved it, or the portal stopped the meter without proof
    VOID = "void"  # withdrawn before any compute was allocated
    LOST = "lost"  # silent past its limit, or fenced; a silent node may still bring it back


class LeaseReason(models.TextChoices):
    """Why a lease ended as it did; the label is the one sentence on the page."""

    NONE = "", ""
    EXITED = "exited", "The work ended by itself."
    TIME_LIMIT = "time_limit", "The work's declared hours were up, or nearly up."
    CANCELLED = "cancelled", "A member of the team cancelled the job."
    LAUNCH_FAILED = "launch_failed", "The node could not start the work."
    SUPERVISOR_DIED = "supervisor_died", "The process that watched the work died."
    NOT_THERE = "not_there", "Its node does not have this attempt any more."
    NODE_REBOOTED = "node_rebooted", "The node was started again in the middle of the work."
    GPU_FAULT = "gpu_fault", "A GPU of this attempt failed."
    SILENT = "silent", "The node was silent for longer than the silence limit."
    NOT_ACKNOWLEDGED = "not_acknowledged", "The node never acknowledged the grant."
    FETCH_FAILED = "fetch_failed", "The node could not fetch the data."
    NODE_DISK_FULL = "node_disk_full", "The node has too little disk for the data and scratch."
    MADE_WAY = "made_way", "It made way for a job that is earlier in the queue."
    NODE_LEFT = "node_left", "The node was drained, revoked or went offline before the start."
    OUTPUT_LOST = "output_lost", "The output that waited on the node is lost with it."
    FENCED = "fenced", "Another attempt of this piece was kept."
    ENDED_BY_OPERATOR = "ended_by_operator", "An operator ended it."
    NO_EVIDENCE = "no_evidence", "The node could not prove that everything was removed."


class OutputWaits(models.TextChoices):
    """Why an output is still on its node, by the last try to send it."""

    NONE = "", "It did not arrive within the output window."
    STORE_FULL = "store_full", "The portal's store has no room for it."
    STORE_AWAY = "store_away", "The portal's store cannot be written."
    UNREACHABLE = "unreachable", "The portal could not be reached."
    NOT_TAKEN = "not_taken", "The portal did not take it when it was sent last."


class IncidentCause(models.TextChoices):
    """Why a lease that a node lists is an incident."""

    UNKNOWN = "unknown", "This portal does not know the attempt."
    BEHIND = "behind", "The attempt is further on than this portal knows."


class IncidentState(models.TextChoices):
    OPEN = "open"  # an operator has to decide; nothing is stopped
    ADOPTED = "adopted"  # the attempt is its piece's own again
    ENDED = "ended"  # the node was told to drop it
    GONE = "gone"  # the node listed it no more before anybody decided


class NodeState(models.TextChoices):
    PENDING = "pending"  # made in the admin; its agent has not enrolled
    ONLINE = "online"  # its agent reports; it takes new leases
    DRAINING = "draining"  # finishes what it has, takes nothing new
    DRAINED = "drained"  # has nothing left and takes nothing new
    OFFLINE = "offline"  # its agent has been silent; work may still be running
    QUARANTINED = "quarantined"  # processes or files of a lease could not be removed
    RETIRED = "retired"  # its credential was revoked; it is history


L = LeaseState
LEASE_MOVES: MoveTable = {
    # Adopted: a restored portal learns that the node has begun it long ago.
    L.PLACED: frozenset({L.READY, L.VOID, L.ALLOCATED}),
    L.READY: frozenset({L.PLACED, L.GRANTED, L.VOID, L.ALLOCATED}),
    L.GRANTED: frozenset({L.ALLOCATED, L.VOID, L.LOST}),
    L.ALLOCATED: frozenset({L.RUNNING, L.RETURNING, L.RELEASING, L.LOST}),
    L.RUNNING: frozenset({L.RETURNING, L.RELEASING, L.LOST}),
    L.RETURNING: frozenset({L.RELEASING, L.LOST}),
    L.RELEASING: frozenset({L.RELEASED, L.LOST}),
    L.RELEASED: frozenset(),
    L.VOID: frozenset(),
    # Kept: its node has spoken again, and the attempt is further on than any other.
    L.LOST: frozenset({L.GRANTED, L.ALLOCATED, L.RUNNING, L.RETURNING, L.RELEASING}),
}
BEFORE_GRANT = frozenset({L.PLACED, L.READY})
HOLDING = frozenset({L.GRANTED, L.ALLOCATED, L.RUNNING, L.RETURNING, L.RELEASING})
METERED = frozenset({L.ALLOCATED, L.RUNNING, L.RETURNING, L.RELEASING})
LIVE = BEFORE_GRANT | HOLDING
TERMINAL = frozenset({L.RELEASED, L.VOID, L.LOST})

N = NodeState
NODE_MOVES: MoveTable = {
    N.PENDING: frozenset({N.ONLINE, N.RETIRED}),
    N.ONLINE: frozenset({N.DRAINING, N.OFFLINE, N.QUARANTINED, N.RETIRED}),
    N.DRAINING: frozenset({N.ONLINE, N.DRAINED, N.OFFLINE, N.QUARANTINED, N.RETIRED}),
    N.DRAINED: frozenset({N.ONLINE, N.OFFLINE, N.QUARANTINED, N.RETIRED}),
    N.OFFLINE: frozenset({N.ONLINE, N.DRAINING, N.QUARANTINED, N.RETIRED}),
    N.QUARANTINED: frozenset({N.ONLINE, N.RETIRED}),
    N.RETIRED: frozenset(),
}
