"""portal.server for tests: one process, little patience to read, and much at the end."""

from portal.server import *  # noqa: F403  the settings are the module's names
from portal.server import limits

workers = 1
worker_connections = 64
limits.LINGER_S = 600
limits.READ_LIMIT_S = 1
limits.WHOLE_LIMIT_S = 3
limits.FIRST_BYTE_S = 12
limits.HEAD_LIMIT_S = 15
