"""The accounts of a demonstration."""

import pytest

from portal.launch import prepare
from portal.teams.models import User

pytestmark = pytest.mark.django_db


def test_nobody_has_a_password_and_everybody_may_set_one(client, settings):
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
    for _ in range(2):
        prepare.make_accounts()
    people = User.objects.filter(email__in=[prepare.SUBMITTER, prepare.OPERATOR])
    assert [person.has_usable_password() for person in people] == [False, False]
    client.force_login(people[0])
    assert client.get("/accounts/password/change/").headers["Location"].endswith("/password/set/")
