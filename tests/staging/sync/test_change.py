"""Changing a connection: what may change, what it forgets, and who may not."""

import pytest

from portal.base.errors import Conflict, DomainError, Forbidden
from staging.models import Connection
from staging.sync import connections
from staging.sync.states import Access
from tests.staging.sync.conftest import connect

pytestmark = pytest.mark.django_db
ACTOR = "owner@climate.example"
FACTS = {"name": "Archive", "region": "eu-1", "path_style": False, "md5_etags": False}
HERE = "http://127.0.0.1:9"


def change(connection: Connection, **given) -> None:
    connections.change_connection(connection=connection, actor=ACTOR, **FACTS | given)


@pytest.fixture
def archive(team) -> Connection:
    return connect(team, None, "readings", endpoint=HERE, name="Archive")


def test_what_was_tested_before_says_nothing_any_more(archive, team):
    connections.test_connection(connection=archive, actor=ACTOR)
    assert archive.test_code == "refused"
    change(archive)
    assert (archive.tested_at, archive.test_code, archive.test_sentence) == (None, "", "")
    assert (archive.region, archive.path_style, archive.md5_etags) == ("eu-1", False, False)
    change(archive, key_id="k", secret="s")
    assert connections.bucket_of(archive).secret.key_id == "k"
    verbs = team.events.values_list("verb", flat=True)
    assert list(verbs)[-2:] == ["connection_change", "connection_secret"]


def test_a_key_alone_changes_nothing_at_all(archive):
    with pytest.raises(DomainError, match="a key and its secret"):
        change(archive, name="Other", key_id="k")
    archive.refresh_from_db()
    assert (archive.name, archive.region) == ("Archive", "us-east-1")


def test_a_name_in_use_and_one_that_is_gone(archive, team):
    other = connect(team, None, "readings", endpoint=HERE, name="Other")
    with pytest.raises(Conflict, match="called Archive already"):
        change(other)
    connections.delete_connection(connection=other, actor=ACTOR)
    with pytest.raises(Conflict, match="was deleted"):
        change(other, name="Third")


def test_one_on_the_operators_role_is_the_operators(team):
    options = {"access": Access.ROLE, "key_id": "", "secret": "", "staff": True, "prefix": "a/"}
    role = connect(team, None, "lent", endpoint=HERE, name="Lent", **options)
    with pytest.raises(Forbidden):
        change(role)
