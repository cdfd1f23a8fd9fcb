"""Choosing, dropping, sending, finishing: what a person sees when nothing goes wrong."""

from pathlib import Path

from tests.staging.uploader.conftest import sha256sums, signed_in, write_tree


def test_a_folder_arrives_and_is_sealed(server, person, dataset, tmp_path):
    sizes = {f"d{n % 3}/{n} é%.txt": n for n in range(60)} | {"big": 20_000_000}
    source = write_tree(tmp_path / "src", sizes)
    tab = person.open(dataset)
    tab.choose(source)
    tab.sealed()
    held = server.digests(dataset)
    assert held.pop("src/big").endswith("-3")
    sums = sha256sums(source)
    del sums["src/big"]
    assert held == sums
    answer = server.request("GET", f"/staging/{dataset}/files/src/big", **server.signed_in)
    assert answer.body == (source / "big").read_bytes()
    assert person.complaints == []


def test_small_files_travel_together(person, dataset, tmp_path):
    source = write_tree(tmp_path / "src", {f"{n // 50}/{n}": 2000 for n in range(400)})
    tab = person.open(dataset)
    tab.choose(source)
    tab.sealed()
    assert 1 <= len(person.sent) <= 8
    assert all(method == "POST" for method, _ in person.sent)


def test_the_three_marks_follow_the_portal(server, person, dataset, tmp_path):
    tab = person.open(dataset)
    tab.choose(write_tree(tmp_path / "src", {"a": 5, "b": 0}))
    tab.sealed()
    marks = {name: tab.page.inner_text(f"#mark-{name}") for name in ("uploaded", "staged")}
    assert marks == {"uploaded": "2 of 2", "staged": "0 of 2"}
    assert tab.row("a").get_by_text("uploaded").is_visible()
    server.verify(dataset)
    tab.page.locator("#uploader").wait_for(state="detached")
    assert tab.page.title().startswith("Staged")


def test_a_refused_name_is_shown_and_the_rest_arrives(person, dataset, tmp_path):
    source = write_tree(tmp_path / "src", {"aux.c": 3, "good": 3, "back\\slash": 3})
    tab = person.open(dataset)
    tab.choose(source)
    tab.uploaded()
    refused = tab.page.inner_text("#refused")
    assert "reserved name" in refused
    assert "backslash" in refused
    tab.page.click("#seal button")
    tab.page.locator("#uploader").wait_for(state="detached")
    assert person.complaints == []


def test_a_dropped_folder_is_walked_and_dropping_it_again_sends_nothing(
    server, person, dataset, tmp_path
):
    source = write_tree(tmp_path / "src", {f"a/b{n % 7}/{n}.bin": 3000 + n for n in range(150)})
    tab = person.open(dataset)
    tab.page.route("**/seal", lambda route: route.abort())
    tab.drop(source)
    tab.uploaded()
    assert server.digests(dataset) == sha256sums(source)
    for code in (dataset, server.new_dataset()):  # by its list, and by its digests
        person.sent.clear()
        again = person.open(code)
        again.page.route("**/seal", lambda route: route.abort())
        again.drop(source)
        again.uploaded()
        assert person.sent == []
        assert again.page.inner_text("#mark-uploaded") == "150 of 150"
    assert person.complaints == []


def test_an_empty_folder_is_refused_clearly(person, dataset, tmp_path):
    (tmp_path / "src" / "within").mkdir(parents=True)
    tab = person.open(dataset)
    tab.drop(tmp_path / "src")
    tab.page.get_by_text("There is no file in what you chose.").wait_for()


def test_without_a_secure_context_the_portal_hashes_alone(server, chrome, wire, dataset, tmp_path):
    context = signed_in(chrome, server, f"http://portal.test:{wire.port}")
    source = write_tree(tmp_path / "src", {"one": 10, "d/two": 9_000_000})
    page = context.new_page()
    page.goto(f"/staging/{dataset}/")
    assert page.evaluate("isSecureContext") is False
    assert "the portal does it alone" in page.inner_text("#no-digests")
    page.set_input_files("#pick-folder", str(source))
    page.get_by_text("Everything has arrived.").wait_for()
    context.close()
    assert server.digests(dataset)["src/one"] == sha256sums(source)["src/one"]
    stored: Path = source / "d/two"
    answer = server.request("GET", f"/staging/{dataset}/files/src/d/two", **server.signed_in)
    assert answer.body == stored.read_bytes()
