"""Every page in both themes: accessible, silent, local, and never wider than its window."""

import pytest
from django.urls import reverse

from nodes.models import Incident
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
        reverse("connections"),
        reverse("connection_new"),
        reverse("sync_choose"),
        reverse("sync_addresses"),
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
    names = ("home", "jobs", "staging", "records", "team", "dataset_new", "job_new")
    for name in (*names, "connections", "sync_choose"):
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


def test_the_team_menu_closes_on_escape_and_on_a_press_elsewhere(visit, owner):
    page = visit(owner).go(reverse("home"))
    menu, summary = page.locator("#who"), page.locator("#who summary")
    summary.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    assert menu.get_attribute("open") is None
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    summary.click()
    assert menu.get_attribute("open") is not None
    page.locator("h1").click()
    assert menu.get_attribute("open") is None


def test_paper_is_white_also_after_a_choice_of_dark(visit, owner, team):
    visitor = visit(owner)
    visitor.page.emulate_media(color_scheme="light")
    job = scenes.succeeded_job(team, make_node("sim-1", gpus=2))
    page = visitor.go(reverse("record", args=[job.code]))
    ink = "getComputedStyle(document.querySelector('h1')).color"
    light = page.evaluate(ink)
    page.locator("#theme-toggle").click()
    assert page.evaluate(ink) != light
    page.emulate_media(media="print")
    assert page.evaluate(ink) == light


def test_the_admin_follows_the_theme(visit, owner):
    owner.is_staff = owner.is_superuser = True
    owner.save()
    visitor = visit(owner)
    visitor.page.emulate_media(color_scheme="light")
    visitor.go(reverse("home")).locator("#theme-toggle").click()
    page = visitor.go(reverse("admin:index"))
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("width", [320, 768, 960, 1100, 1280])
def test_no_list_scrolls_in_its_box(visit, owner, paths, width):
    visitor = visit(owner)
    visitor.page.set_viewport_size({"width": width, "height": 800})
    over = """() => [...document.querySelectorAll('.cardlist')]
      .map(t => t.scrollWidth - t.parentElement.clientWidth)"""
    wide = {}
    for name in ("home", "jobs", "staging", "records"):
        visitor.go(reverse(name))
        if any(pixels > 0 for pixels in visitor.page.evaluate(over)):
            wide[name] = visitor.page.evaluate(over)
    assert wide == {}


def test_the_header_has_two_rows_however_long_the_name_of_the_team(visit, owner, team):
    type(team).objects.update(name="Climate and Oceans Observation Working Group (north)")
    visitor = visit(owner)
    visitor.page.set_viewport_size({"width": 320, "height": 640})
    page = visitor.go(reverse("jobs"))
    assert page.evaluate("document.querySelector('.top').offsetHeight") < 110


def test_tab_goes_from_field_to_field_to_the_button(visit):
    page = visit().go(reverse("account_login"))
    assert page.evaluate("document.activeElement.name") == "login"
    seen = []
    for _ in range(3):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate("document.activeElement.name || document.activeElement.innerText")
        )
    assert seen[0] == "password"
    assert "Sign in" in seen[1:]


@pytest.fixture
def operators_paths(team, owner) -> list[str]:
    """The lists and pages of the admin, with rows."""
    node = make_node("sim-1", gpus=3)
    scenes.every_job(team, make_node("sim-2", gpus=30))
    Incident.objects.create(
        node=node, lease="q7x2k9m4ab", token="1.4", cause="unknown", first_seen_at=scenes.ago(9),
        last_seen_at=scenes.ago(2), report={}, gpus=[],
    )  # fmt: skip
    owner.is_staff = owner.is_superuser = True
    owner.save()
    models = ["nodes_node", "nodes_gpu", "nodes_lease", "nodes_incident", "nodes_ledgerrow"]
    models += ["jobs_job", "staging_dataset", "teams_team", "teams_user"]
    return [
        *(reverse(f"admin:{model}_changelist") for model in models),
        reverse("admin:nodes_node_change", args=[node.pk]),
        reverse("admin:teams_team_change", args=[team.pk]),
        reverse("admin:teams_user_change", args=[owner.pk]),
        reverse("admin:nodes_node_act", args=[node.pk, "drain"]),
    ]


def test_no_page_of_operators_has_a_violation(visit, owner, operators_paths):
    visitor = visit(owner)
    wrong = {}
    for width in (1280, 320):
        visitor.page.set_viewport_size({"width": width, "height": 800})
        for path in operators_paths:
            visitor.go(path)
            if found := visitor.violations():
                wrong[f"{path} {width}"] = found
    assert wrong == {}


def test_the_lists_of_operators_fit_at_1280_pixels(visit, owner, operators_paths):
    visitor = visit(owner)
    visitor.page.set_viewport_size({"width": 1280, "height": 800})
    over = """() => Math.max(0, ...[...document.querySelectorAll('#result_list')]
      .map(t => t.scrollWidth - t.parentElement.clientWidth))"""
    wide = {}
    for path in [path for path in operators_paths if path.count("/") == 4]:
        if (pixels := visitor.go(path).evaluate(over)) > 0:
            wide[path] = pixels
    assert wide == {}


def test_a_secret_that_is_shown_once_is_shown_whole(visit, owner):
    owner.is_staff = owner.is_superuser = True
    owner.save()
    page = visit(owner).go(reverse("admin:nodes_node_add"))
    page.fill("[name=name]", "lab-9")
    page.click("[name=_save]")
    box = page.locator("#enrol-command")
    assert "E31_ENROL_TOKEN=" in box.input_value()
    assert box.evaluate("e => e.scrollHeight - e.clientHeight") <= 0
    assert box.bounding_box()["width"] > 600
    page.click("[data-copy]")
    page.get_by_role("button", name="Copied").wait_for()
