"""The set-up of one machine: database, static files, accounts, nodes. Safe to repeat.

Runs as `python -m portal.launch.prepare NODE...`, a process of its own, so that the launcher
itself never opens the database.
"""

import hashlib
import os
import secrets
import sys
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

import django
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import CommandError, call_command
from django.db import DatabaseError

TEAM = "Demo"
SUBMITTER = "demo@portal.example"
OPERATOR = "operator@portal.example"


def command(name: str, *args: str, **options: object) -> str:
    """What a management command printed, stripped."""
    out = StringIO()
    call_command(name, *args, stdout=out, **options)
    return out.getvalue().strip()


def migrate() -> None:
    call_command("migrate", verbosity=0, interactive=False)


def _static_sources() -> Iterable[str]:
    for finder in get_finders():
        for path, storage in finder.list([]):
            stat = os.stat(storage.path(path))
            yield f"{path} {stat.st_size} {stat.st_mtime_ns}"


def collect_static() -> None:
    """Only when a source changed: hashing and compressing takes seconds."""
    stamp = Path(settings.DATA_DIR) / "staticfiles.stamp"
    digest = hashlib.sha256("\n".join(sorted(_static_sources())).encode()).hexdigest()
    done = stamp.exists() and stamp.read_text() == digest
    if done and (Path(settings.STATIC_ROOT) / "staticfiles.json").exists():
        return
    call_command("collectstatic", verbosity=0, interactive=False, clear=True)
    stamp.write_text(digest)


def make_accounts() -> None:
    """The team of the main job, one submitter in it, one operator; none has a password.

    One-time links sign them in: `manage.py signin_link ADDRESS`. Then they may set one.
    """
    from portal.teams.models import Team, User

    # The invitation is accepted in the same breath: nobody needs the mail about it.
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.dummy.EmailBackend"}}
    os.environ["E31_PASSWORD"] = secrets.token_urlsafe(24)
    try:
        if not Team.objects.filter(name=TEAM).exists():
            command("create_team", TEAM, admin=SUBMITTER, password=True)
            user = User.objects.get(email=SUBMITTER)
            user.set_unusable_password()  # the page would ask for one that nobody knows
            user.save(update_fields=["password"])
    finally:
        del os.environ["E31_PASSWORD"]
    if not User.objects.filter(email=OPERATOR).exists():
        command("create_operator", OPERATOR)


def make_node(name: str) -> None:
    """A node and its enrolment token, unless its agent holds a credential that still counts."""
    from nodes.fleet import new_enrolment_token
    from nodes.models import Node

    state = Path(settings.DATA_DIR) / "nodes" / name
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    node = Node.objects.filter(name=name).first()
    credential = state / "credential"
    if node is None:
        # The database is younger than the folder: what the agent knows of the old one is void.
        credential.unlink(missing_ok=True)
        simulated = name == "simulated"
        write_token(state, command("create_node", name, *(["--simulated"] if simulated else [])))
    elif not credential.exists():
        write_token(state, new_enrolment_token(node=node, actor="make run"))


def write_token(state: Path, token: str) -> None:
    path = state / "enrolment-token"
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(token)


def main(nodes: list[str]) -> int:
    django.setup()
    try:
        migrate()
        collect_static()
        make_accounts()
        for name in nodes:
            make_node(name)
    except (CommandError, DatabaseError, OSError) as error:
        print(f"The set-up stopped: {error}", file=sys.stderr)
        return 1
    print("database, static files, accounts and nodes are in place")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    sys.exit(main(sys.argv[1:]))
