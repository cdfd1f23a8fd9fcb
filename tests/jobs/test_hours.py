"""Reading hours as people write them."""

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from hypothesis import event, given
from hypothesis import strategies as st

from jobs.code import safe_path
from jobs.forms.data import MOUNT, folder_name
from jobs.forms.fields import LONGEST, hours_text, parse_hours


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4", 14400),
        ("0.5", 1800),
        ("0,5", 1800),
        (" 4h ", 14400),
        ("4 H", 14400),
        ("30 min", 1800),
        ("90m", 5400),
        ("1:30", 5400),
        ("1:30:05", 5405),
        ("0:00:10", 10),
        ("1h30", 5400),
        ("1 h 30 min", 5400),
        ("2 days", 172800),
        ("1 day 2 hours", 93600),
        ("45 s", 45),
        ("1.5 hours", 5400),
    ],
)
def test_ways_to_write_hours(text, seconds):
    assert parse_hours(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", "h", "4 4", "1:60", "1:2:3:4", "30 min 1 h", "1h 1h", "0x4", "4 weeks", "½", "１", "1_0"],
)
def test_what_is_no_length(text):
    with pytest.raises(ValidationError):
        parse_hours(text)


@given(st.text(max_size=40))
def test_any_text_is_a_length_in_bounds_or_one_sentence(text):
    try:
        length = parse_hours(text)
    except ValidationError as error:
        (sentence,) = error.messages
        event(sentence)
        return
    assert timedelta(seconds=1) <= length <= LONGEST


@given(st.integers(min_value=1, max_value=int(LONGEST.total_seconds())))
def test_what_is_shown_reads_back_the_same(seconds):
    length = timedelta(seconds=seconds)
    assert parse_hours(hours_text(length)) == length


@given(st.text(max_size=200))
def test_a_made_up_folder_name_is_empty_or_allowed(name):
    made = folder_name(name)
    assert not made or (MOUNT.fullmatch(made) and made not in {".", ".."})


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=60))
def test_a_name_that_passes_stays_beneath_its_folder(name):
    try:
        path = safe_path(name)
    except ValidationError as error:
        (sentence,) = error.messages
        event(sentence[-30:])
        return
    assert path == name
    assert not {"", ".", ".."} & set(path.split("/"))
    assert "\0" not in path
    assert "\\" not in path
