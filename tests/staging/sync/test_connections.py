"""Connections: what is asked of them, what they keep, and what a test of one says."""

import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from django.core.management import call_command

from portal.base.crypto import decrypt
from portal.base.errors import Conflict, DomainError, Forbidden
from staging.models import Connection
from staging.sync import connections, sources
from staging.sync.errors import SourceRefuses
from staging.sync.states import Access
from tests.staging.sync.conftest import begin, connect, finish
from tests.staging.sync.stores import KEY, SECRET
from tests.staging.sync.stubs import Stub

pytestmark = [pytest.mark.django_db, pytest.mark.xdist_group("weed")]
ACTOR = "owner@climate.example"


def try_out(connection: Connection) -> connections.Test:
    found = connections.test_connection(connection=connection, actor=ACTOR)
    connection.refresh_from_db()
    assert (connection.test_code, connection.test_sentence) == (found.code, found.sentence)
    assert SECRET not in found.sentence
    return found


def test_a_connection_that_works(team, weed, bucket):
    assert try_out(connect(team, weed, bucket)).works
    weed.put(bucket, {"a": b"x"})
    assert "can be read" in try_out(connect(team, weed, bucket, name="Two")).sentence


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"secret": "wrong"}, "signature"),
        ({"key_id": "nobody"}, "signature"),
        ({"key_id": "lister-key"}, "may_not_read"),
        ({"access": Access.ANONYMOUS, "key_id": "", "secret": ""}, "denied"),
    ],
)
def test_what_is_wrong_with_the_credentials(team, weed, bucket, options, code):
    weed.put(bucket, {"a": b"x"})
    assert try_out(connect(team, weed, bucket, **options)).code == code


def test_no_such_bucket(team, weed):
    found = try_out(connect(team, weed, "not-there"))
    assert (found.code, "not-there" in found.sentence) == ("no_bucket", True)


def test_a_name_that_does_not_resolve(team, monkeypatch):
    def fails(*_args, **_options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    found = try_out(connect(team, None, "bkt", endpoint="https://nowhere.example"))
    assert (found.code, "does not resolve" in found.sentence) == ("name", True)


def test_nobody_listens(team):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert (
        try_out(connect(team, None, "bkt", endpoint=f"http://127.0.0.1:{port}")).code == "refused"
    )


def test_an_address_inside_is_refused(team, settings):
    settings.SYNC_ALLOWED_NETWORKS = []
    found = try_out(connect(team, None, "bkt", endpoint="http://127.0.0.1:9"))
    assert (found.code, "not public" in found.sentence) == ("address", True)


@pytest.mark.parametrize("skew", [-421, 4000])
@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "SignatureDoesNotMatch"])
def test_clocks_that_differ_are_told_with_the_number(team, skew, code):
    def reply(path, headers):
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=skew), usegmt=True)
        return 403, {"Date": date}, f"<Error><Code>{code}</Code></Error>".encode()

    stub = Stub(reply)
    found = try_out(connect(team, None, "bkt", endpoint=stub.endpoint))
    stub.close()
    assert found.code == "clock_skew"
    assert found.skew_s is not None
    assert abs(found.skew_s - skew) <= 2
    assert ("ahead of" if skew > 0 else "behind") in found.sentence


def test_another_region_is_told(team):
    stub = Stub(lambda *_: (301, {"x-amz-bucket-region": "eu-west-1"}, b""))
    found = try_out(connect(team, None, "bkt", endpoint=stub.endpoint))
    stub.close()
    assert (found.code, "eu-west-1" in found.sentence) == ("region", True)


def test_the_secret_is_encrypted_and_on_no_row_in_clear(team, weed, bucket):
    connection = connect(team, weed, bucket)
    row = Connection.objects.filter(pk=connection.pk).values().get()
    assert SECRET not in str(row)
    assert KEY not in str(row)
    assert json.loads(decrypt(connection.sealed)) == [KEY, SECRET]
    assert SECRET not in repr(connections.bucket_of(connection))


@pytest.mark.parametrize("keys", [("", ""), (KEY, ""), ("", SECRET), ("  ", "\t")])
def test_empty_keys_are_refused_whatever_the_machine_has(team, weed, bucket, monkeypatch, keys):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(DomainError, match="none is taken from elsewhere"):
        connect(team, weed, bucket, key_id=keys[0], secret=keys[1])


def test_an_anonymous_connection_takes_no_credentials_of_the_machine(
    team, weed, bucket, monkeypatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    connection = connect(team, weed, bucket, access=Access.ANONYMOUS, key_id="", secret="")
    assert try_out(connection).code == "denied"


def test_only_staff_lends_the_role_and_only_for_a_prefix(team, weed, bucket):
    options = {"access": Access.ROLE, "key_id": "", "secret": ""}
    with pytest.raises(Forbidden):
        connect(team, weed, bucket, prefix="theirs", **options)
    with pytest.raises(DomainError, match="prefix"):
        connect(team, weed, bucket, staff=True, **options)


def role_connection(team, weed, bucket) -> Connection:
    return connect(
        team, weed, bucket, access=Access.ROLE, key_id="", secret="", prefix="theirs", staff=True
    )


def test_a_role_connection_reads_its_prefix_and_nothing_else(
    team, weed, bucket, settings, tmp_path
):
    weed.put(bucket, {"theirs/a": b"yes", "theirs2/b": b"no", "secret/c": b"no"})
    connection = role_connection(team, weed, bucket)
    assert try_out(connection).code == "role"
    role = tmp_path / "role.json"
    role.write_text(json.dumps({"AccessKeyId": KEY, "SecretAccessKey": SECRET}))
    settings.SYNC_ROLE_FILE = str(role)
    assert try_out(connection).works
    for prefix in ("", "../secret", "secret", "theirs"):
        source = begin(connection, prefix, name=f"From {prefix}")
        assert source.prefix.startswith("theirs/")
    source = finish(begin(connection, name="All"))
    assert {file.path for file in source.dataset.files.all()} == {"a"}
    with pytest.raises(Forbidden):
        connections.delete_connection(connection=connection, actor=ACTOR)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"AccessKeyId": "", "SecretAccessKey": ""}',
        "null",
        '{"AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2001-01-01T00:00:00+00:00"}',
    ],
)
def test_a_role_that_cannot_be_read_is_no_role(team, weed, bucket, settings, tmp_path, text):
    (tmp_path / "role.json").write_text(text)
    settings.SYNC_ROLE_FILE = str(tmp_path / "role.json")
    with pytest.raises(SourceRefuses):
        connections.bucket_of(role_connection(team, weed, bucket))


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "ftp://x",
        "https://",
        "https://u:p@host",
        "https://host/path",
        "https://host?q",
        "https://host:99999",
        "https://hóst",
        "file:///etc",
        "https://[::1",
        "https://a b",
    ],
)
def test_endpoints_that_are_none(team, endpoint):
    with pytest.raises(DomainError):
        connect(team, None, "bkt", endpoint=endpoint or " ")


@pytest.mark.parametrize("name", ["", "a/b", "..", "b?x", "b#", "ü", "x" * 300])
def test_buckets_that_are_none(team, weed, name):
    with pytest.raises(DomainError):
        connect(team, weed, name)


def test_one_name_once_in_a_team(team, other_team, weed, bucket):
    connect(team, weed, bucket, name="Lab")
    connect(other_team, weed, bucket, name="Lab")
    with pytest.raises(Conflict, match="Lab"):
        connect(team, weed, bucket, name="Lab")


def test_a_connection_of_another_team_cannot_be_used(team, other_team, weed, bucket, dataset):
    theirs = connect(other_team, weed, bucket)
    with pytest.raises(DomainError, match="no such connection"):
        sources.create_source(
            dataset=dataset, choice=sources.Choice(sources.SourceKind.S3, theirs), actor=ACTOR
        )


def test_a_changed_secret_is_used_from_then_on(team, weed, bucket):
    connection = connect(team, weed, bucket, secret="wrong")
    assert not try_out(connection).works
    connections.change_secret(connection=connection, key_id=KEY, secret=SECRET, actor=ACTOR)
    assert try_out(connection).works


def test_deleting_forgets_the_secret_and_waits_for_no_source(team, weed, bucket):
    weed.put(bucket, {"a": b"x"})
    connection = connect(team, weed, bucket)
    source = begin(connection)
    with pytest.raises(Conflict, match="A sync uses"):
        connections.delete_connection(connection=connection, actor=ACTOR)
    finish(source)
    connections.delete_connection(connection=connection, actor=ACTOR)
    connection.refresh_from_db()
    assert connection.sealed == ""
    assert not Connection.objects.of_team(team).exists()
    verbs = list(team.events.values_list("verb", flat=True))
    assert {"connection_create", "connection_delete"} <= set(verbs)


def test_keys_are_rotated_by_a_command(team, weed, bucket, settings):
    from cryptography.fernet import Fernet

    connection = connect(team, weed, bucket)
    old = list(settings.FIELD_KEYS)
    new = Fernet.generate_key().decode()
    settings.FIELD_KEYS = [new, *old]
    call_command("encrypt_again", verbosity=0)
    settings.FIELD_KEYS = [new]
    connection.refresh_from_db()
    assert try_out(connection).works
    settings.FIELD_KEYS = old
    assert try_out(connection).code == "sealed"
