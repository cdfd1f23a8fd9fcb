"""Which bodies are small: the server collects them beside each other before a thread takes them.

No Django here: the server reads it too (portal.server.connection).
"""

SMALL_BODY = 2**16  # bytes; no form for people who are not signed in needs more
PATCH_TYPE = "application/offset+octet-stream"
PACK_TYPE = "application/x-e31-pack"
AS_THEY_ARRIVE = (PATCH_TYPE, PACK_TYPE)  # never collected: what came of a cut one is kept
