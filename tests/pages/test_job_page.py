"""/jobs/<code>/ and its live part, in every state, for everyone who may ask."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from jobs.models import Job
from nodes.models import Lease, Node
from portal.pages.jobpage import PIECES_PER_PAGE, milestone_of
from staging.models import File
from tests.factories import make_job, make_node
from tests.pages import scenes

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.fixture
def node():
    return make_node("sim-1", gpus=30)


def page(client: Client, job: Job, query: str = "") -> str:
    response = client.get(reverse("job", args=[job.code]) + query)
    assert response.status_code == 200
    return response.content.decode()


def test_every_state_renders_page_and_live_part(owner_client, team, node):
    for job in scenes.every_job(team, node):
        html = page(owner_client, job)
        assert job.name in html
        assert "style=" not in html
        live = owner_client.get(
            reverse("job_live", args=[job.code]), headers={"HX-Request": "true"}
        )
        assert live.status_code == 200
        assert "<html" not in live.content.decode()


def test_the_title_starts_with_the_state(mate_client, team, node):
    assert "<title>Failed: " in page(mate_client, scenes.failed_job(team, node))
    job = scenes.running_job(team, node)
    assert "<title>Running: Token" in page(mate_client, job)
    live = mate_client.get(reverse("job_live", args=[job.code])).content.decode()
    assert "<title>Running: Token" in live


def test_polling_goes_on_until_the_end_and_then_stops(owner_client, team, node):
    job = scenes.state_job(team, node, 5)
    url = reverse("job_live", args=[job.code])
    assert 'hx-trigger="every 2s, refresh"' in owner_client.get(url).content.decode()
    scenes.set_states(job, "ended", "succeeded")
    assert "hx-get" not in owner_client.get(url).content.decode()
    assert "hx-get" not in page(owner_client, job)


def test_the_poll_keeps_the_filter_and_the_page(owner_client, team, node):
    html = page(owner_client, scenes.running_job(team, node), "?only=succeeded&page=1")
    assert re.search(r'hx-get="/jobs/\w+/live\?only=succeeded&amp;page=1"', html)


def test_without_javascript_a_refresh_link_stands_there(owner_client, team, node):
    job = scenes.state_job(team, node, 5)
    assert f'id="refresh" href="/jobs/{job.code}/"' in page(owner_client, job)


def test_five_steps_with_the_present_one_marked(owner_client, team, node):
    html = page(owner_client, scenes.state_job(team, node, 5))
    assert html.count('aria-current="step"') == 1
    for title in ("Submit", "Rent", "Run", "Output", "Release"):
        assert f'<span class="step-name">{title}</span>' in html


def test_a_failed_job_says_why_at_its_step(owner_client, team, node):
    html = page(owner_client, scenes.failed_job(team, node, "failed", "output_missing"))
    assert "A declared output path was not there after exit 0." in html
    html = page(owner_client, scenes.cancelled_in_queue(team))
    assert html.count("not reached") == 4


def test_the_meter_shows_held_time_gpu_hours_and_the_cap(owner_client, team, node):
    html = page(owner_client, scenes.succeeded_job(team, node))
    assert '<p class="meter-number">0:57:23</p>' in html
    assert "2.07 GPU-hours can be counted" in html
    assert "Held while waiting for data" in html
    assert "Nothing on this page is a price." in html


def test_a_job_without_gpus_is_metered_in_held_hours(owner_client, team):
    job = make_job(team, gpus=0)
    scenes.make_lease(job.shards.get(), make_node("cpu"), 90, 80, 70, 60, 50)
    scenes.set_states(job, "active")
    html = page(owner_client, job)
    assert "metered in held hours" in html
    assert "GPU-hours" not in html


def test_waiting_is_explained_with_numbers_and_history(owner_client, team):
    html = page(owner_client, scenes.queued_job(team))
    assert "the largest has 4 free until 14:10" in html
    assert "Predicted start" in html
    assert "the largest has 2 free until 14:40" in html


def test_a_silent_node_is_said_and_nothing_is_claimed_ended(owner_client, team, node):
    job = scenes.state_job(team, node, 5)
    Node.objects.update(last_seen_at=scenes.ago(190))
    assert "No contact with node sim-1 for 3 min." in page(owner_client, job)


def test_simulated_gpus_and_no_isolation_are_labelled(owner_client, team):
    bare = make_node("dev", gpus=2, isolation="process")
    html = page(owner_client, scenes.state_job(team, bare, 5))
    assert "Simulated GPUs" in html
    assert "No isolation" in html
    assert '<span class="tag">no isolation</span>' in html


def test_a_secret_is_known_by_its_name_only(owner_client, team):
    html = page(owner_client, scenes.queued_job(team))
    assert "HUB_TOKEN" in html
    assert "secret, not shown" in html
    assert "hunter2" not in html
    assert "gAAAA" not in html


def test_hostile_names_are_text_everywhere(owner_client, team):
    node = make_node(HOSTILE[:60], gpus=2)
    job = make_job(
        team, name=HOSTILE, script=HOSTILE, command=HOSTILE, finish_command=HOSTILE,
        created_by=HOSTILE,
    )  # fmt: skip
    dataset = scenes.with_data(job, team, HOSTILE)
    job.inputs.update(mount=HOSTILE, patterns=[HOSTILE])
    job.output_paths.update(pattern=HOSTILE)
    job.variables.create(name=HOSTILE, stored=HOSTILE)
    job.note("submit", at=scenes.ago(3), actor=HOSTILE, reason="r")
    scenes.make_lease(job.shards.get(), node, 90, 80, 70, 60, 50, detail=HOSTILE)
    scenes.set_states(job, "active")
    scenes.with_output(job)
    File.objects.filter(dataset=job.output, size=333).update(path=HOSTILE)
    html = page(owner_client, job)
    assert dataset.name == HOSTILE
    assert "<script>alert" not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;alert(1)") >= 10


@pytest.mark.parametrize("name", ["job", "job_live"])
def test_foreign_and_made_up_codes_answer_the_same(stranger_client, team, node, name):
    job = scenes.state_job(team, node, 5)
    foreign = stranger_client.get(reverse(name, args=[job.code]))
    made_up = stranger_client.get(reverse(name, args=["zzzzzzzzzz"]))
    assert foreign.status_code == made_up.status_code == 404
    assert job.name not in foreign.content.decode()
    strip = re.compile(rb"csrfmiddlewaretoken\" value=\"\w+\"|zzzzzzzzzz|" + job.code.encode())
    assert strip.sub(b"", foreign.content) == strip.sub(b"", made_up.content)


def test_an_operator_who_is_in_no_team_sees_no_job(operator_client, team, node):
    job = scenes.state_job(team, node, 5)
    assert operator_client.get(reverse("job", args=[job.code])).status_code == 404


def test_anonymous_people_are_asked_to_sign_in(client, team):
    job = make_job(team)
    for name in ("job", "job_live"):
        response = client.get(reverse(name, args=[job.code]))
        assert response.status_code == 302
        assert "/accounts/" in response["Location"]


def test_pages_only_read(owner_client, team):
    job = make_job(team)
    assert owner_client.post(reverse("job", args=[job.code])).status_code == 405


def test_a_draft_goes_to_its_form(owner_client, team):
    job = make_job(team, state="draft", submitted_at=None, queued_at=None)
    response = owner_client.get(reverse("job", args=[job.code]))
    assert response["Location"] == reverse("job_edit", args=[job.code])


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?page=0", 200),
        ("?page=999999999999999999999", 200),
        ("?page=<b>", 200),
        ("?only=<b>", 200),
        ("?page=x%00", 400),
        ("?only=%00", 400),
    ],
)
def test_hostile_queries_do_no_harm(owner_client, team, node, query, status):
    job = scenes.running_job(team, node)
    response = owner_client.get(reverse("job", args=[job.code]) + query)
    assert response.status_code == status
    assert "<b>" not in response.content.decode()


def in_pieces(team, node, count: int) -> Job:
    job = make_job(team, shards=count)
    for number, shard in enumerate(job.shards.all()):
        steps = (90, 80, 70, 60, 50) if number % 2 else (90, 80)
        scenes.make_lease(shard, node, *steps, gpu_count=1 if number == 1 else 0)
    return scenes.set_states(job, "active")


def test_the_number_of_queries_does_not_grow_with_pieces(
    owner_client, team, node, django_assert_max_num_queries
):
    few, many = in_pieces(team, node, 2), in_pieces(team, node, 60)
    owner_client.get(reverse("job_live", args=[few.code]))
    with django_assert_max_num_queries(30) as seen:
        owner_client.get(reverse("job_live", args=[few.code]))
    with django_assert_max_num_queries(len(seen)):
        owner_client.get(reverse("job_live", args=[many.code]))


def test_ten_thousand_pieces_are_one_drawing(owner_client, team):
    job = scenes.with_attempts(scenes.huge_job(team), [make_node(gpus=8)])
    html = page(owner_client, job, "?only=failed")
    assert 'class="grid"' in html
    assert "37 failed" in html
    assert len(html) < 200_000


def test_thousands_of_attempts_cost_no_query_and_are_not_read_as_rows(
    owner_client, team, django_assert_max_num_queries, monkeypatch
):
    """The live part is asked for every few seconds; `make bench-pages` says how long it takes."""
    node = make_node(gpus=8)
    few, many = (
        scenes.with_attempts(scenes.huge_job(team, pieces), [node]) for pieces in (500, 2000)
    )
    made: list[Lease] = []
    monkeypatch.setattr(Lease, "__init__", counting(Lease.__init__, made))
    with django_assert_max_num_queries(32) as seen:
        owner_client.get(reverse("job_live", args=[few.code]))
    with django_assert_max_num_queries(len(seen)):
        owner_client.get(reverse("job_live", args=[many.code]))
    running = few.shards.filter(state="active").count() + many.shards.filter(state="active").count()
    assert len(made) <= running + 2 * PIECES_PER_PAGE


def counting(method, made: list):
    def counted(self, *args, **kwargs):
        made.append(self)
        method(self, *args, **kwargs)

    return counted


def test_the_table_of_pieces_says_no_reason_twice(owner_client, team):
    """The exit code has a column, and one piece alone has its reason with the steps."""
    sentence = "The work used more memory than it declared and was stopped."
    node = make_node(gpus=24)
    one = scenes.failed_job(team, node, "failed", "memory_limit")
    assert page(owner_client, one).count(sentence) == 1
    coded = scenes.with_attempts(scenes.huge_job(team, 30), [node])
    assert "exit code other than 0" not in page(owner_client, coded, "?only=failed")
    coded.shards.filter(outcome="failed").update(reason="memory_limit")
    assert page(owner_client, coded, "?only=failed").count(sentence) >= 1


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        ("succeeded", "The job succeeded."),
        ("timed_out", "The job timed out."),
        ("cancelled", "The job was cancelled."),
        ("lost", "The job was lost."),
    ],
)
def test_the_end_is_said_in_a_sentence(outcome, sentence):
    assert milestone_of(Job(state="ended", outcome=outcome), []) == sentence
