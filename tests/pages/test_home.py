"""The home page: what is going on, and one next action."""

import pytest
from django.urls import reverse

from portal.pages.homepage import next_action
from tests.factories import make_dataset, make_job, make_node
from tests.pages import scenes

pytestmark = pytest.mark.django_db


def home(client) -> str:
    response = client.get(reverse("home"))
    assert response.status_code == 200
    return response.content.decode()


def test_a_new_team_is_led_from_data_to_job(owner_client, team):
    html = home(owner_client)
    assert "1. Stage data" in html
    assert f'class="button button-primary" href="{reverse("dataset_new")}"' in html
    make_dataset(team)
    assert f'class="button button-primary" href="{reverse("job_new")}"' in home(owner_client)


def test_everything_that_goes_on_is_there(mate_client, team):
    scenes.every_job(team, make_node("sim-1", gpus=24))
    make_job(team, name="Half written", state="draft", submitted_at=None, queued_at=None)
    html = home(mate_client)
    assert "<title>6 running · E31</title>" in html
    for words in (
        "Retrain the depth model",
        "4 free until 14:10",
        "2 of 5 pieces done",
        "Footage, week 48",
        "Half written",
        "Score the table",
    ):
        assert words in html


def test_another_team_sees_nothing_of_it(stranger_client, team):
    jobs = scenes.every_job(team, make_node("sim-1", gpus=24))
    html = home(stranger_client)
    assert not any(job.name in html for job in jobs)
    assert "1. Stage data" in html


def test_hostile_names_are_text(owner_client, team):
    hostile = "<script>alert(1)</script>"
    make_job(team, name=hostile)
    make_dataset(team, name=hostile, state="transferring")
    html = home(owner_client)
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;") >= 2


def test_an_operator_of_no_team_is_led_to_the_nodes(operator_client):
    html = home(operator_client)
    assert "You are in no team yet" in html
    assert reverse("nodes") in html


def test_anonymous_people_sign_in_first(client):
    response = client.get(reverse("home"))
    assert response.status_code == 302
    assert response["Location"].startswith("/accounts/")


def test_a_lone_draft_is_the_next_thing():
    assert next_action({"draft": 1}, True).url == "jobs"
    assert next_action({"draft": 1, "ended": 2}, True).url == "job_new"
    assert next_action({}, False).url == "dataset_new"


def test_the_number_of_queries_does_not_grow(owner_client, team, django_assert_max_num_queries):
    node = make_node("sim-1", gpus=60)
    scenes.running_job(team, node)
    scenes.queued_job(team)
    owner_client.get(reverse("home"))
    with django_assert_max_num_queries(25) as few:
        owner_client.get(reverse("home"))
    for _ in range(4):
        scenes.running_job(team, node)
        scenes.queued_job(team)
    with django_assert_max_num_queries(len(few)):
        owner_client.get(reverse("home"))
