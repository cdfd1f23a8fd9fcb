"""The job page follows the job without being loaded again."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from jobs.models import Job
from portal.base.clock import db_now
from tests.factories import make_node
from tests.pages import scenes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def node(db):
    return make_node("sim-1", gpus=8)


def open_job(visit, user, job: Job):
    page = visit(user).go(reverse("job", args=[job.code]))
    page.evaluate("window.sameLoad = true")
    return page


def finish(job: Job) -> None:
    lease = job.shards.get().leases.get()
    now = db_now()
    type(lease).objects.filter(pk=lease.pk).update(
        state="released", returning_at=now, releasing_at=now, released_at=now, ended_at=now
    )
    scenes.set_states(job, "ended", "succeeded")


def test_the_page_follows_the_job_to_its_end_and_then_stops(visit, mate, team, node):
    job = scenes.state_job(team, node, 5)
    page = open_job(visit, mate, job)
    expect(page.locator('[aria-current="step"] .step-name')).to_have_text("Run")
    finish(job)
    expect(page.locator(".job-state")).to_contain_text("succeeded", timeout=60_000)
    expect(page).to_have_title(re.compile("^Succeeded: "))
    expect(page.locator("#announce")).to_have_text("The job succeeded.")
    assert page.locator("#job-live").get_attribute("hx-get") is None
    assert page.evaluate("window.sameLoad")


def test_the_meter_moves(visit, mate, team, node):
    page = open_job(visit, mate, scenes.state_job(team, node, 5))
    first = page.locator(".meter-number").inner_text()
    expect(page.locator(".meter-number")).not_to_have_text(first, timeout=60_000)
    assert page.evaluate("window.sameLoad")


def test_focus_and_opened_parts_survive_the_swap(visit, mate, team, node):
    job = scenes.state_job(team, node, 5)
    page = open_job(visit, mate, job)
    page.locator("#events-summary").click()
    page.locator("#log-0").focus()
    with page.expect_response("**/live*"):
        pass
    page.wait_for_function("document.activeElement.id === 'log-0'")
    assert page.evaluate("document.getElementById('events').open")


def test_a_hidden_tab_does_not_poll(visit, mate, team, node):
    job = scenes.state_job(team, node, 5)
    page = open_job(visit, mate, job)
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("htmx.trigger('#job-live', 'refresh')")
    page.wait_for_function("new Promise(done => setTimeout(() => done(true), 2600))")
    assert asked == []
    page.evaluate("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
    with page.expect_response("**/live*"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_session_that_ended_shows_the_sign_in_page(visit, mate, team, node):
    page = open_job(visit, mate, scenes.state_job(team, node, 5))
    page.context.clear_cookies()
    page.wait_for_url("**/accounts/**", timeout=60_000)


def test_without_javascript_the_page_is_whole(visit, mate, team, node, browser, live_server):
    job = scenes.running_job(team, node)
    context = browser.new_context(java_script_enabled=False)
    from tests.browser.conftest import sign_in

    sign_in(context, mate, live_server.url)
    page = context.new_page()
    page.goto(live_server.url + reverse("job", args=[job.code]))
    expect(page.locator(".steps li")).to_have_count(7)
    expect(page.locator("#theme-toggle")).to_be_hidden()
    page.locator("#refresh").click()
    expect(page.locator("h1")).to_have_text(job.name)
    context.close()
