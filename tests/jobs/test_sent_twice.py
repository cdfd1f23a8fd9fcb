"""One page makes one job, however often and however fast it is sent."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from django.test import Client

from jobs.models import Job
from portal.base.codes import new_code
from tests.factories import make_node
from tests.jobs.cast import form_data


def key_of(client: Client) -> str:
    page = client.get("/jobs/new").content.decode()
    return re.search(r'name="form_key" value="([^"]+)"', page).group(1)


@pytest.mark.django_db
def test_the_second_sending_leads_to_the_first_ones_job(owner_client):
    make_node(gpus=8)
    data = form_data(form_key=key_of(owner_client), action="submit")
    first = owner_client.post("/jobs/new", data)
    second = owner_client.post("/jobs/new", data, follow=True)
    job = Job.objects.get()
    assert first["Location"] == f"/jobs/{job.code}/"
    assert "This page was submitted before, as this job." in second.content.decode()


@pytest.mark.django_db
def test_another_page_makes_another_job(owner_client):
    make_node(gpus=8)
    for _ in range(2):
        key = key_of(owner_client)
        owner_client.post("/jobs/new", form_data(form_key=key, action="submit"))
    assert Job.objects.count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    "key", ["", "x", "a" * 20, "2" * 21, "\u00e9" * 20, "../../etc/passwd....."]
)
def test_a_key_that_is_not_ours_counts_as_none(owner_client, key):
    make_node(gpus=8)
    answer = owner_client.post("/jobs/new", form_data(form_key=key, action="submit"))
    assert answer.status_code == 302
    assert Job.objects.get().form_key == ""


@pytest.mark.django_db
def test_a_key_is_worth_nothing_in_another_team(owner_client, stranger_client):
    make_node(gpus=8)
    data = form_data(form_key=key_of(owner_client), action="submit")
    owner_client.post("/jobs/new", data)
    stranger_client.post("/jobs/new", data)
    assert Job.objects.count() == 2


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
def test_four_sendings_at_once_make_one_job(owner, two_writers):
    make_node(gpus=8)
    data = form_data(form_key=new_code(20), action="submit")

    def send(_: int) -> int:
        client = Client()
        client.force_login(owner)
        try:
            return client.post("/jobs/new", data).status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(send, range(4)))
    assert answers.count(302) >= 1
    assert set(answers) <= {302, 409}
    assert Job.objects.exclude(state="draft").count() == 1
    assert Job.objects.count() == 1
