"""What `manage.py doctor` looks at, one function a subject; each yields findings in sentences."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http.request import validate_host
from django.utils import timezone

from nodes import watch
from nodes.agent import sandbox
from nodes.models import NO_ISOLATION, Incident, Node
from nodes.states import NodeState
from portal.base.words import in_bytes, in_words
from portal.pages import parts
from portal.private import database_files, open_to_others
from portal.teams import mail
from portal.teams.models import User

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
LEAST_PYTHON = (3, 12)


@dataclass(frozen=True)
class Finding:
    """`level` is fine, note (nothing breaks, but know it) or problem (to be put right)."""

    level: str
    sentence: str


def fine(sentence: str) -> Finding:
    return Finding("fine", sentence)


def note(sentence: str) -> Finding:
    return Finding("note", sentence)


def problem(sentence: str) -> Finding:
    return Finding("problem", sentence)


def python() -> Iterator[Finding]:
    version = ".".join(str(n) for n in sys.version_info[:3])
    if sys.version_info[:2] < LEAST_PYTHON:
        yield problem(f"Python is {version}; the portal needs 3.12 or newer.")
    else:
        yield fine(f"Python is {version}.")


def database() -> Iterator[Finding]:
    part = parts.database()
    if not part.ok:
        yield problem(f"{part.why} {part.detail}".strip())
        return
    executor = MigrationExecutor(connection)
    waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if waiting:
        yield problem(f"{len(waiting)} migrations have not been applied: run manage.py migrate.")
    else:
        yield fine(f"The database ({connection.vendor}) answers and is migrated.")


def broker() -> Iterator[Finding]:
    part = parts.broker()
    kind = "embedded" if settings.EMBEDDED_BROKER else "external"
    yield (
        fine(f"The {kind} broker answers.")
        if part.ok
        else problem(f"{part.why} {part.detail}".strip())
    )


def store() -> Iterator[Finding]:
    part = parts.store()
    if not part.ok:
        yield problem(f"{part.why} {part.detail}".strip())
        return
    if warning := part.facts.get("warning"):
        yield problem(f"The store's disk is too full: {warning}")
        return
    free = in_bytes(int(str(part.facts["free_bytes"])))
    floor = in_bytes(settings.DISK_FLOOR_BYTES)
    yield fine(f"The store can be written; {free} are free, of which {floor} stay free.")


def keys() -> Iterator[Finding]:
    """Keys in files must be readable by this installation's user only."""
    folder = settings.DATA_DIR / "keys"
    if not folder.is_dir():
        yield note("There are no key files: all keys come from the environment.")
        return
    found = [path for path in (folder, *sorted(folder.iterdir())) if open_to_others(path)]
    for path in found:
        yield problem(f"{path} can be read by other users of this machine: chmod go= {path}")
    if not found:
        yield fine("Only this installation's user can read its keys.")


def data() -> Iterator[Finding]:
    """Sessions and hashes of passwords lie in the database, outputs and logs in the folder."""
    paths = [settings.DATA_DIR, *_database_files()]
    found = [path for path in paths if open_to_others(path)]
    for path in found:
        yield problem(f"{path} can be read by other users of this machine: chmod go= {path}")
    if not found:
        yield fine("Only this installation's user can read its data.")


def _database_files() -> list[Path]:
    name = settings.DATABASES["default"]["NAME"]
    return database_files(Path(name)) if connection.vendor == "sqlite" else []


def address() -> Iterator[Finding]:
    """PUBLIC_URL, ALLOWED_HOSTS, DEBUG and HTTPS have to fit together."""
    host = urlsplit(settings.PUBLIC_URL).hostname or ""
    local = host in LOOPBACK
    found = [*_hosts(host), *_debug(local), *_https(host, local)]
    yield from found
    if all(finding.level != "problem" for finding in found):
        yield fine(f"The portal's address is {settings.PUBLIC_URL}.")


def _hosts(host: str) -> Iterator[Finding]:
    if "*" in settings.ALLOWED_HOSTS:
        yield problem("ALLOWED_HOSTS contains *, so anybody can choose the host in its pages.")
    elif not validate_host(f"[{host}]" if ":" in host else host, settings.ALLOWED_HOSTS):
        yield problem(
            f"PUBLIC_URL names the host {host}, and ALLOWED_HOSTS does not: its pages answer 400."
        )


def _debug(local: bool) -> Iterator[Finding]:
    if settings.DEBUG and not local:
        yield problem("DEBUG is on at a public address: error pages show code and settings.")
    elif settings.DEBUG:
        yield note("DEBUG is on. Error pages show code and settings.")


def _https(host: str, local: bool) -> Iterator[Finding]:
    if not settings.SECURE and not local:
        yield problem(
            f"PUBLIC_URL is http:// at {host}: passwords, data and credentials of nodes travel "
            "readable, and browsers compute no digests there. Put it behind HTTPS."
        )
    if settings.BEHIND_PROXY and not settings.SECURE:
        yield problem("BEHIND_PROXY is set, and PUBLIC_URL is not https://.")


def mailing() -> Iterator[Finding]:
    if mail.sends_mail():
        yield fine("Mail goes out by SMTP.")
    else:
        yield note(
            "No mail is sent: invitations are shown to whoever makes them, and a lost password "
            "needs `manage.py signin_link`. Set EMAIL_BACKEND and EMAIL_HOST to change that."
        )


def static_files() -> Iterator[Finding]:
    manifest = settings.STATIC_ROOT / "staticfiles.json"
    if manifest.is_file():
        yield fine("Static files are collected.")
    else:
        yield problem("Static files are not collected: run manage.py collectstatic.")


def scheduler() -> Iterator[Finding]:
    part = parts.scheduler()
    if part.ok:
        yield fine(f"The last scheduling pass was {part.facts['age_s']} s ago.")
    else:
        yield problem(f"{part.why} {part.detail}".strip())


def silence() -> Iterator[Finding]:
    """Asked as a worker asks before it counts a node's silence."""
    if watch.portal_answers():
        yield fine(f"The portal answers at {settings.PUBLIC_URL}, asked from here.")
    else:
        yield problem(
            f"{settings.PUBLIC_URL}/healthz cannot be reached from here. Where a worker cannot "
            "reach it either, the portal counts as away and the silence of a node is never "
            "counted: work on a lost node is not tried elsewhere."
        )


def people() -> Iterator[Finding]:
    try:
        operators = User.objects.filter(is_staff=True, is_active=True).count()
    except DatabaseError:
        return  # database() has said why
    if operators:
        yield fine(f"Operators: {operators}.")
    else:
        yield note("There is no operator: manage.py create_operator EMAIL makes one.")


def nodes() -> Iterator[Finding]:
    try:
        rows = list(Node.objects.exclude(state=NodeState.RETIRED))
    except DatabaseError:
        return  # database() has said why
    if not rows:
        yield note("No node has been made, so no job can start: add one in the admin.")
    for node in rows:
        yield _node(node)


def _node(node: Node) -> Finding:
    because = f": {node.reason}" if node.reason else "."
    if node.state == NodeState.OFFLINE:
        seen = (
            f"{in_words(timezone.now() - node.last_seen_at)} ago" if node.last_seen_at else "never"
        )
        return problem(f"Node {node.name} is offline; it was last heard of {seen}.")
    if node.state == NodeState.QUARANTINED:
        return problem(f"Node {node.name} is quarantined{because}")
    if node.state == NodeState.PENDING:
        return note(f"Node {node.name} has not enrolled.")
    if node.isolation == NO_ISOLATION and not node.takes_work:
        return problem(
            f"Node {node.name} cannot isolate work and gets none: install bubblewrap on it."
        )
    if node.isolation == NO_ISOLATION:
        return problem(f"Node {node.name} runs work without isolation.")
    return fine(f"Node {node.name} is {node.state}.")


def incidents() -> Iterator[Finding]:
    """Attempts that nodes have and this portal does not know: an operator has to decide."""
    for incident in Incident.objects.open().select_related("node"):
        yield problem(
            f"Node {incident.node.name} has attempt {incident.lease}, which this portal does not "
            "know: adopt or end it (admin, Incidents)."
        )


def isolation() -> Iterator[Finding]:
    """Only matters where this machine runs an agent too; it is really tried."""
    path, why = sandbox.probe()
    if path:
        yield fine(f"Work on this machine can be isolated with {path}.")
    else:
        yield note(f"An agent on this machine could not isolate work. {why}")


SUBJECTS = (
    python,
    database,
    broker,
    store,
    keys,
    data,
    address,
    mailing,
    static_files,
    scheduler,
    silence,
    people,
    nodes,
    incidents,
    isolation,
)


def findings() -> Iterator[Finding]:
    for subject in SUBJECTS:
        yield from subject()
