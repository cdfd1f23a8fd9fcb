"""portal.server for tests: one process, little patience to read or send, and much at the end."""

from portal import server
from portal.server import *  # noqa: F403  the settings are the module's names

workers = 1
server.LINGER_S = 600
server.READ_LIMIT_S = 1
server.SEND_LIMIT_S = 1
server.WHOLE_LIMIT_S = 3
