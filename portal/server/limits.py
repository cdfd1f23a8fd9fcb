"""How long a client may take. Modules read these as they need them, so a test can shorten them."""

FIRST_BYTE_S = 10  # for the first byte of a new connection; a kept one has gunicorn's `keepalive`
HEAD_LIMIT_S = (
    30  # for a whole head, from its first byte; again for a small body, from its head's end
)
LONGEST_HEAD = 2**16  # bytes
SILENT_S = 1.0  # that whoever makes room in a full process was silent for at least
STOP_S = 1  # that a stopping process waits for requests that may be on their way
LOOK_EVERY_S = 1.0  # between looks at all connections

READ_LIMIT_S = 30  # for the next byte of a body that is read as a whole and is not small
SEND_LIMIT_S = 60  # for the client to take the next bytes
# That may be waited for a client in all, while it sends a body, and again while it takes the
# answer: so long, and a second more for each KiB that moved. An upload slower than that is cut;
# what arrived of it is kept.
WHOLE_LIMIT_S = 60
LEAST_RATE = 1024  # bytes a second
STOOD_STILL_S = 5.0  # more than this between two looks was our own doing

DRAIN_S = 0.05  # for the rest of a body that nobody reads, so that the connection can be kept
LINGER_S = 5.0  # that a client has for taking the answer and hanging up
# What it may send meanwhile; it is thrown away. Many read no answer before they have sent all.
LINGER_BYTES = 2**28
MOST_LINGERING = 256
