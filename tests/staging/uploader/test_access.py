"""By keyboard, by screen reader, in a narrow window, in both themes."""

import pytest

from tests.staging.uploader.conftest import write_tree

SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def half(wire, person, dataset, tmp_path):
    """A page in the middle of an upload: some files there, one refused, one on its way."""
    sizes = {f"folder with a long name/{n} é.txt": 900 for n in range(40)}
    source = write_tree(tmp_path / "src", sizes | {"nul.txt": 4, "big": 40_000_000})
    wire.rate = 1_000_000
    tab = person.open(dataset)
    tab.choose(source)
    tab.row("big").get_by_role("button", name="Pause").wait_for()
    tab.page.locator("#refused").wait_for()
    wire.rate = 100_000  # it is still on its way when all was looked at
    return tab


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 320])
def test_nothing_is_wrong_and_nothing_scrolls_sideways(half, person, scheme, width):
    half.page.emulate_media(color_scheme=scheme)
    half.page.set_viewport_size({"width": width, "height": 800})
    half.page.wait_for_timeout(100)
    assert half.violations() == []
    assert half.page.evaluate(SIDEWAYS) == 0
    half.page.click("#remove-all")
    assert half.violations() == []
    half.page.keyboard.press("Escape")
    assert person.complaints == []


def test_the_keyboard_does_everything(half):
    page = half.page
    half.row("big").get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    half.row("big").get_by_text("paused").wait_for()
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused) == "Resume: big"  # the focus stays where the person was
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Remove: big"
    page.locator("#rows").evaluate("(rows) => { rows.scrollTop = rows.scrollHeight; }")
    page.wait_for_timeout(200)
    assert page.evaluate(focused) == "Remove: big"  # also when it is scrolled out of view
    page.keyboard.press("Enter")
    half.row("big").wait_for(state="detached")
    page.locator("#remove-all").wait_for(state="hidden")


def test_only_milestones_are_said_aloud(wire, person, dataset, tmp_path):
    tab = person.open(dataset)
    record = """() => {
      window.said = [];
      new MutationObserver(() => window.said.push(document.getElementById("announce").textContent))
        .observe(document.getElementById("announce"), { childList: true, characterData: true });
    }"""
    tab.page.evaluate(record)
    wire.rate = 12_000_000
    tab.choose(write_tree(tmp_path / "src", {f"{n}": 1_500_000 for n in range(20)}))
    tab.sealed()
    said = [text for text in tab.page.evaluate("window.said") if "uploaded" in text]
    assert 1 <= len(said) <= 5
    assert said[-1] == "Everything was uploaded. It is being checked."
