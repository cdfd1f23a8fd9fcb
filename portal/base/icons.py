"""The shape, word and tone of every state, and the inline icons that draw the shapes.

A shape says the state without its color: a tick never means merely "ended", a hollow shape holds
no compute. Icons are drawn on 16 x 16 in the color of the text around them.
"""

from dataclasses import dataclass

RING = '<circle cx="8" cy="8" r="5.75"/>'
DISC = '<circle class="fill" cx="8" cy="8" r="6.5"/>'

ICONS = {
    "dashed": '<circle cx="8" cy="8" r="5.75" stroke-dasharray="2.6 2.1"/>',
    "up": '<path d="M8 10.5v-8M4.8 5.6 8 2.4l3.2 3.2M2.5 10v3.5h11V10"/>',
    "fetch": '<path d="M8 2v8M4.8 6.9 8 10.1l3.2-3.2M2.5 10v3.5h11V10"/>',
    "clock": RING + '<path d="M8 4.9V8l2.1 1.6"/>',
    "ready": RING + '<circle class="fill" cx="8" cy="8" r="2"/>',
    "half": RING + '<path class="fill" d="M8 2.2a5.8 5.8 0 0 1 0 11.6z"/>',
    "solid": '<rect class="fill" x="2" y="4" width="12" height="8"/>',
    "play": '<path class="fill" d="M3.5 1.8 14 8 3.5 14.2z"/>',
    "return": '<path d="M6 4 2.5 7.5 6 11M2.8 7.5h7a3.6 3.6 0 0 1 0 6H8"/>',
    "sweep": '<rect x="2.75" y="2.75" width="10.5" height="10.5" stroke-dasharray="2.6 2.1"/>',
    "square": '<rect x="2.75" y="2.75" width="10.5" height="10.5"/>',
    "tick": DISC + '<path class="cut" d="m4.9 8.2 2.2 2.2 4.1-4.6"/>',
    "cross": '<path class="fill" d="M5.2 1.5h5.6l3.7 3.7v5.6l-3.7 3.7H5.2l-3.7-3.7V5.2z"/>'
    '<path class="cut" d="m5.6 5.6 4.8 4.8m0-4.8-4.8 4.8"/>',
    "slash": RING + '<path d="m4.1 11.9 7.8-7.8"/>',
    "hourglass": '<path d="M3.5 1.75h9M3.5 14.25h9M4.5 2c0 3 3.5 4 3.5 6s-3.5 3-3.5 6M11.5 2c0 '
    '3-3.5 4-3.5 6s3.5 3 3.5 6"/>',
    "unknown": '<path d="M8 1.2 14.8 8 8 14.8 1.2 8z"/><path d="M6.5 6.6c0-1.9 3-1.9 3 0C9.5 8 8 '
    '7.8 8 9.1M8 10.9v.4"/>',
    "dash": '<path d="M3 8h10"/>',
    "dot": '<circle class="fill" cx="8" cy="8" r="4"/>',
    "hollow": '<circle cx="8" cy="8" r="4"/>',
    "drain": '<path d="M8 2v9M4.5 7.8 8 11.3l3.5-3.5M3 14h10"/>',
    "warn": '<path class="fill" d="M8 1.3 15.3 14.3H.7z"/>'
    '<path class="cut" d="M8 5.8v4M8 11.6v.6"/>',
    "gone": '<rect x="2.75" y="2.75" width="10.5" height="10.5" stroke-dasharray="1.5 2"/>'
    '<path d="m6 6 4 4m0-4-4 4"/>',
    "sun": '<circle cx="8" cy="8" r="3"/><path d="M8 1v1.8M8 13.2V15M1 8h1.8M13.2 8H15M3 3l1.3 '
    '1.3M11.7 11.7 13 13M13 3l-1.3 1.3M4.3 11.7 3 13"/>',
    "moon": '<path d="M13.5 9.8A6 6 0 0 1 6.2 2.5a6 6 0 1 0 7.3 7.3z"/>',
    "pause": '<path class="fill" d="M3.5 2.5h3.25v11H3.5zM9.25 2.5h3.25v11H9.25z"/>',
    "down": '<path d="m4 6 4 4 4-4"/>',
}


@dataclass(frozen=True)
class Look:
    """How a state stands on a page. `tone` picks the color: quiet, move, run, good, bad, warn."""

    icon: str
    word: str
    tone: str


STATES = {
    "draft": Look("dashed", "draft", "quiet"),
    "staging": Look("up", "staging", "move"),
    "queued": Look("clock", "queued", "quiet"),
    "active": Look("play", "running", "run"),
    "delivering": Look("return", "returning", "move"),
    "ended": Look("square", "ended", "quiet"),
    "succeeded": Look("tick", "succeeded", "good"),
    "failed": Look("cross", "failed", "bad"),
    "timed_out": Look("hourglass", "timed out", "warn"),
    "cancelled": Look("slash", "cancelled", "quiet"),
    "lost": Look("unknown", "lost", "warn"),
    # attempts
    "placed": Look("fetch", "on its way to the node", "move"),
    "ready": Look("ready", "ready on the node", "quiet"),
    "granted": Look("half", "granted", "quiet"),
    "allocated": Look("solid", "rented", "run"),
    "running": Look("play", "running", "run"),
    "returning": Look("return", "returning", "run"),
    "releasing": Look("sweep", "releasing", "run"),
    "released": Look("square", "released", "quiet"),
    "void": Look("dash", "withdrawn", "quiet"),
    # datasets and uploads
    "declared": Look("dashed", "no files yet", "quiet"),
    "transferring": Look("up", "on its way to the store", "move"),
    "verifying": Look("clock", "verifying", "move"),
    "staged": Look("tick", "staged", "good"),
    "expiring": Look("hourglass", "being deleted", "warn"),
    "purged": Look("gone", "deleted", "quiet"),
    "stale": Look("warn", "source changed", "warn"),
    "expected": Look("dashed", "not uploaded", "quiet"),
    "uploaded": Look("solid", "uploaded", "move"),
    "checked": Look("ready", "verified", "move"),
    "open": Look("up", "uploading", "move"),
    "complete": Look("solid", "uploaded", "move"),
    "expired": Look("hourglass", "expired", "warn"),
    "terminated": Look("slash", "removed", "quiet"),
    # syncs: the source's own states, and the marks of what it brings
    "listing": Look("dashed", "being listed", "move"),
    "copying": Look("fetch", "being copied", "move"),
    "paused": Look("pause", "paused", "warn"),
    "listed": Look("hollow", "listed", "quiet"),
    "awaited": Look("dashed", "not copied yet", "quiet"),
    "copied": Look("solid", "copied", "move"),
    "unreadable": Look("cross", "cannot be had", "bad"),
    # nodes
    "pending": Look("dashed", "not enrolled", "quiet"),
    "online": Look("dot", "online", "good"),
    "draining": Look("drain", "draining", "move"),
    "drained": Look("hollow", "drained", "quiet"),
    "offline": Look("slash", "no contact", "warn"),
    "quarantined": Look("warn", "quarantined", "bad"),
    "retired": Look("dash", "retired", "quiet"),
    # GPUs
    "free": Look("hollow", "free", "quiet"),
    "held": Look("solid", "held", "run"),
    "unusable": Look("warn", "unusable", "bad"),
}


def look_of(state: str, outcome: str = "") -> Look:
    """The look of a state; an ended one looks like its outcome."""
    name = outcome if state == "ended" and outcome else state
    return STATES.get(name) or Look("hollow", name.replace("_", " "), "quiet")
