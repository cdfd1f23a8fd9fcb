"""Every page in both themes: accessible, silent, local, and never wider than its window."""

import pytest
from django.urls import reverse

from portal.teams.models import Membership
from tests.factories import make_dataset, make_job, make_node
from tests.pages import scenes

pytestmark = pytest.mark.django_db(transaction=True)

LONG = "W" * 110


@pytest.fixture
def paths(team, owner) -> list[str]:
    """The pages that a member who is also an operator can see, with rows in every state."""
    node = make_node("sim-1", gpus=30)
    make_node("lab-3", gpus=2, isolation="process", state="offline", last_seen_at=scenes.ago(300))
    jobs = scenes.every_job(team, node)
    jobs.append(make_job(team, name=LONG))
    jobs.append(scenes.huge_job(team, 400))
    draft = make_job(team, name="Half", state="draft", submitted_at=None, queued_at=None)
    dataset = make_dataset(team, name=LONG)
    owner.is_staff = owner.is_superuser = True
    owner.save()
    done = next(job for job in jobs if job.outcome == "succeeded")
    failed = next(job for job in jobs if job.outcome == "failed")
    return [
        reverse("home"),
        reverse("jobs"),
        reverse("job_new"),
        reverse("job_edit", args=[draft.code]),
        reverse("job_cancel", args=[jobs[2].code]),
        reverse("job_log", args=[failed.code, "0"]),
        reverse("staging"),
        reverse("dataset_new"),
        reverse("dataset", args=[dataset.code]),
        reverse("dataset", args=[done.output.code]),
        reverse("records"),
        reverse("record", args=[done.code]),
        reverse("nodes"),
        reverse("team"),
        *(reverse("job", args=[job.code]) for job in jobs),
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_violation(visit, owner, paths, scheme):
    visitor = visit(owner)
    visitor.page.emulate_media(color_scheme=scheme)
    wrong = {}
    for path in paths:
        visitor.go(path)
        if found := visitor.violations():
            wrong[path] = found
    assert wrong == {}


def test_no_page_scrolls_sideways_at_320_pixels(visit, owner, paths):
    visitor = visit(owner)
    visitor.page.set_viewport_size({"width": 320, "height": 640})
    wide = {}
    for path in paths:
        visitor.go(path)
        if over := visitor.sideways():
            wide[path] = over
    assert wide == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_new_team_sees_accessible_empty_pages(visit, stranger, scheme):
    visitor = visit(stranger)
    visitor.page.emulate_media(color_scheme=scheme)
    wrong = {}
    for name in ("home", "jobs", "staging", "records", "team", "dataset_new", "job_new"):
        visitor.go(reverse(name))
        found = visitor.violations()
        visitor.page.set_viewport_size({"width": 320, "height": 640})
        if visitor.sideways():
            found.append("scrolls sideways")
        if found:
            wrong[name] = found
    assert wrong == {}


def test_the_sign_in_page_is_accessible(visit):
    visitor = visit()
    visitor.go(reverse("account_login"))
    assert visitor.violations() == []


def test_controls_are_at_least_24_pixels(visit, owner, paths):
    visitor = visit(owner)
    script = """() => [...document.querySelectorAll('a, button, summary, input, select')]
      .filter(e => e.checkVisibility() && !e.closest('p, dd, .visually-hidden, .skip, .cover'))
      .map(e => [e, e.getBoundingClientRect()])
      .filter(([e, r]) => r.width > 0 && (r.height < 23.5 || r.width < 23.5)
                          && !['checkbox', 'radio'].includes(e.type))
      .map(([e, r]) => e.outerHTML.slice(0, 80) + ` ${r.width}x${r.height}`)"""
    small = {}
    for path in paths:
        visitor.go(path)
        if found := visitor.page.evaluate(script):
            small[path] = found[:5]
    assert not small, "\n".join(f"{path} {found}" for path, found in small.items())


def test_the_skip_link_leads_to_the_content(visit, owner):
    page = visit(owner).go(reverse("home"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_theme_is_remembered(visit, owner):
    visitor = visit(owner)
    visitor.page.emulate_media(color_scheme="light")
    page = visitor.go(reverse("home"))
    shown = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(shown)
    page.locator("#theme-toggle").click()
    dark = page.evaluate(shown)
    assert light != dark
    page.reload()
    assert page.evaluate(shown) == dark
    page.locator("#theme-toggle").click()
    assert page.evaluate(shown) == light


def test_the_team_menu_works_by_keyboard(visit, owner, other_team):
    Membership.objects.create(team=other_team, user=owner)
    page = visit(owner).go(reverse("home"))
    page.locator("#who summary").press("Enter")
    page.get_by_role("button", name=other_team.name).click()
    page.wait_for_url("**/")
    assert page.locator("#who .menu-label").inner_text() == other_team.name
