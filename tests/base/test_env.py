"""Typed readers of the environment: right values, hostile values, and the sentence for each."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal.env import Env, left_by_run
from portal.launch.place import leave_settings


def env(value: str) -> Env:
    return Env({"X": value})


@pytest.mark.parametrize("value", ["1", "true", "TRUE", " yes ", "on"])
def test_flag_is_true(value):
    assert env(value).flag("X") is True


@pytest.mark.parametrize("value", ["0", "false", "No", "off"])
def test_flag_is_false(value):
    assert env(value).flag("X", default=True) is False


@pytest.mark.parametrize("value", ["", "   "])
def test_empty_counts_as_unset(value):
    assert env(value).flag("X", default=True) is True
    assert env(value).number("X", 7) == 7
    assert env(value).text("X", "d") == "d"
    assert env(value).words("X", ("a",)) == ["a"]
    assert env(value).choice("X", "a", {"a"}) == "a"
    assert env(value).folder("X", Path("/d")) == Path("/d")


@pytest.mark.parametrize("value", ["2", "y e s", "truee", "\x00", "да", "None"])
def test_flag_refuses(value):
    with pytest.raises(ImproperlyConfigured, match="X must be true or false"):
        env(value).flag("X")


@pytest.mark.parametrize(
    "value",
    ["-1", "+5", "1.5", "1e3", "0x10", "１２", "²", "12 13", "9" * 40, "nan", "4_000", "\x00"],
)
def test_number_refuses(value):
    with pytest.raises(ImproperlyConfigured, match="X must be a whole number from 0 to"):
        env(value).number("X", 1)


def test_number_refuses_thousands_of_digits_without_effort():
    with pytest.raises(ImproperlyConfigured, match="X must be a whole number"):
        env("9" * 10_000).number("X", 1)


@pytest.mark.parametrize(("value", "fits"), [("4", False), ("5", True), ("9", True), ("10", False)])
def test_number_keeps_its_bounds(value, fits):
    if fits:
        assert env(value).number("X", 5, least=5, most=9) == int(value)
    else:
        with pytest.raises(ImproperlyConfigured, match="from 5 to 9"):
            env(value).number("X", 5, least=5, most=9)


def test_seconds():
    assert env("90").seconds("X", 1) == timedelta(seconds=90)
    with pytest.raises(ImproperlyConfigured, match="X must be"):
        env("0").seconds("X", 1)
    with pytest.raises(ImproperlyConfigured, match="X must be"):
        env("1000000001").seconds("X", 1)


def test_words():
    assert env(" a, b,,c ").words("X") == ["a", "b", "c"]
    assert env(" , ").words("X", ("d",)) == []


def test_choice_refuses_and_names_what_is_allowed():
    with pytest.raises(ImproperlyConfigured, match="X must be one of a, b, not 'c'"):
        env("c").choice("X", "a", {"b", "a"})


@pytest.mark.parametrize("value", ["var", "./var", "../x", "C:\\data"])
def test_folder_refuses_relative_paths(value):
    with pytest.raises(ImproperlyConfigured, match="X must be an absolute path"):
        env(value).folder("X", Path("/d"))


@pytest.mark.parametrize("value", ["http//x", "ftp://x", "javascript:alert(1)", "//x", "x", "http"])
def test_url_refuses_other_schemes(value):
    with pytest.raises(ImproperlyConfigured, match="X must be a URL that starts with one of"):
        env(value).url("X", "http://d", {"http", "https"})


def test_url_takes_what_is_allowed():
    assert env("https://a.example/b").url("X", "", {"https"}) == "https://a.example/b"


@pytest.mark.parametrize("value", ["http://[", "http://[::1", "http://x:port", "http://"])
def test_url_refuses_what_is_no_address(value):
    with pytest.raises(ImproperlyConfigured, match="X must be a URL"):
        env(value).url("X", "http://d", {"http", "https"})


def test_the_error_never_holds_a_secret_address():
    with pytest.raises(ImproperlyConfigured) as caught:
        env("mysql://user:hunter2@db/x").url("X", "", {"sqlite"})
    assert "hunter2" not in str(caught.value)


def test_what_a_run_left_counts_where_the_environment_is_silent(tmp_path):
    with leave_settings(tmp_path, {"PUBLIC_URL": "http://127.0.0.1:8471", "DEBUG": "1"}):
        reader = Env({"X": "own", "PUBLIC_URL": " "})
        reader.beneath = left_by_run(tmp_path)
    assert reader.text("PUBLIC_URL", "default") == "http://127.0.0.1:8471"
    assert reader.flag("DEBUG") is False
    reader.source = {"PUBLIC_URL": "https://gpu.example"}
    assert reader.text("PUBLIC_URL") == "https://gpu.example"


def test_what_a_run_left_counts_for_nothing_once_that_run_is_gone(tmp_path):
    """However it ended: a lock goes with its process, the file may stay."""
    left = {"PUBLIC_URL": "http://127.0.0.1:8471", "ALLOW_PROCESS_ISOLATION": "true"}
    running = leave_settings(tmp_path, left)
    assert left_by_run(tmp_path) == left_by_run(tmp_path) == left
    running.close()
    assert (tmp_path / "running.json").exists()
    assert left_by_run(tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_what_a_run_left_in_pieces_counts_as_nothing(content, tmp_path):
    assert left_by_run(tmp_path) == {}
    with leave_settings(tmp_path, {}):
        (tmp_path / "running.json").write_bytes(content)
        assert left_by_run(tmp_path) == {}
