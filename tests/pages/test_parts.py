"""The building blocks that every page stands on."""

from datetime import UTC, datetime, timedelta

import pytest
from django import forms
from django.core.paginator import Paginator
from django.template import Context, Template
from django.template.loader import render_to_string
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from jobs.models import Job
from jobs.states import JobState, Outcome, ShardState
from nodes.models import Lease, LedgerRow, Node
from nodes.states import LeaseState, NodeState
from portal.base import words
from portal.base.icons import ICONS, STATES, look_of
from portal.base.templatetags.portal import declared
from staging.states import DatasetState, FileState, UploadState


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (1_500_000_000, "1.5 GB"),
        (999_999, "1 MB"),
        (2**63, "9.2 EB"),
    ],
)
def test_bytes_in_decimal_units(number, text):
    assert words.in_bytes(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2**29, "0.5 GiB"),
        (3 * 2**29, "1.5 GiB"),
        (15 * 2**40, "15,360 GiB"),
        (0, "0 GiB"),
        (None, ""),
    ],
)
def test_what_was_declared_in_the_unit_of_the_form(number, text):
    assert declared(number) == text


@pytest.mark.parametrize("model", [Node, Lease, Job, LedgerRow])
def test_columns_are_named_as_people_write_them(model):
    names = " ".join(str(field.verbose_name) for field in model._meta.fields)
    assert not {"gpu", "gpus", "cpu", "cpus"} & set(names.split())


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "0:00:00"),
        (340, "0:00:00.3"),
        (999, "0:00:01.0"),
        (59_949, "0:00:59.9"),
        (59_950, "0:01:00"),
        (timedelta(seconds=30), "0:00:30"),
        (61_000, "0:01:01"),
        (timedelta(days=5, seconds=9), "120:00:09"),
        (-5000, "-0:00:05.0"),
    ],
)
def test_lengths_are_hours_minutes_seconds(length, text):
    assert words.in_hms(length) == text


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ([340, 340, 340], ["0:00:00.4", "0:00:00.3", "0:00:00.3", "0:00:01.0"]),
        (
            [1_340, 9_460, 990, 100],
            ["0:00:01.3", "0:00:09.5", "0:00:01.0", "0:00:00.1", "0:00:11.9"],
        ),
        ([3_600_000, 60_400], ["1:00:00", "0:01:00", "1:01:00"]),
        ([3_600_000, 400], ["1:00:00.0", "0:00:00.4", "1:00:00.4"]),
        ([3_600_000, 0, 2_000], ["1:00:00.0", "0:00:00", "0:00:02.0", "1:00:02.0"]),
        ([], ["0:00:00"]),
    ],
)
def test_a_column_of_lengths_adds_up_to_its_sum(parts, texts):
    assert words.hms_column(parts) == texts


@given(
    parts=st.lists(st.integers(0, 10**8), max_size=20),
    unit=st.sampled_from([words.TENTH, words.SECOND, 3_600_000]),
)
def test_shares_add_up_and_are_off_by_less_than_one_unit(parts, unit):
    found = words.shares(parts, unit)
    assert sum(found) == words.rounded(sum(parts), unit)
    assert all(abs(n * unit - part) < unit for n, part in zip(found, parts, strict=True))


def test_a_column_of_hours_keeps_a_short_run_from_reading_0():
    assert words.hours_column([9_000, 18_500]) == ["0.0025", "0.0051", "0.0076"]
    assert words.hours_column([3_600_000, 1_800_000]) == ["1.00", "0.50", "1.50"]


def test_a_prediction_that_has_passed_promises_nothing():
    now = timezone.now()
    page = Template("{% load portal %}{{ at|foreseen }}")
    assert page.render(Context({"at": now + timedelta(minutes=3, seconds=9)})) == "in 3 min"
    text = page.render(Context({"at": now - timedelta(minutes=3)}))
    assert text == "passed 3 min ago; not known anew yet"


def test_lengths_in_words_and_hours():
    assert words.in_words(timedelta(seconds=40)) == "40 s"
    assert words.in_words(timedelta(minutes=3)) == "3 min"
    assert words.in_words(timedelta(days=9)) == "9 days"
    assert words.in_hours(0) == "0.00"
    assert words.in_hours(3_600) == "0.0010"
    assert words.in_hours(4 * 3_600_000) == "4.00"


@pytest.mark.parametrize(
    "state",
    [
        *(s for s in JobState if s != JobState.ENDED),
        *(s for s in ShardState if s != ShardState.ENDED),
        *(o for o in Outcome if o),
        *LeaseState,
        *NodeState,
        *DatasetState,
        *FileState,
        *UploadState,
    ],
)
def test_every_state_has_a_shape_and_a_word(state):
    look = STATES[state.value]
    assert look.word
    assert look.icon in ICONS


def test_no_two_outcomes_share_a_shape_and_only_proof_is_a_tick():
    outcomes = [look_of("ended", o.value).icon for o in Outcome if o]
    assert len(set(outcomes)) == len(outcomes)
    ticks = {name for name, look in STATES.items() if look.icon == "tick"}
    assert ticks == {"succeeded", "staged"}


def test_an_unknown_state_is_shown_as_its_escaped_word():
    html = Template("{% load portal %}{% status '<b>x_y' %}").render(Context())
    assert "&lt;b&gt;x y" in html
    assert "<b>" not in html


def test_times_are_utc_and_machine_readable():
    at = datetime(2026, 11, 30, 8, 41, tzinfo=UTC)
    html = Template("{% load portal %}{% when at %}").render(Context({"at": at}))
    assert html == '<time datetime="2026-11-30T08:41:00+00:00">2026-11-30 08:41 UTC</time>'


class SampleForm(forms.Form):
    name = forms.CharField(help_text="As the team knows it.", max_length=5)
    keep = forms.BooleanField(required=False)
    size = forms.ChoiceField(choices=[("s", "small")], widget=forms.RadioSelect)


def test_a_field_is_described_by_its_hint_and_error_and_keeps_input():
    form = SampleForm({"name": "<i>too long</i>"})
    summary = render_to_string("parts/errors.html", {"form": form})
    html = render_to_string("parts/field.html", {"field": form["name"]})
    assert 'href="#id_name"' in summary
    assert 'aria-describedby="id_name_helptext id_name_error"' in html
    assert 'id="id_name_helptext"' in html
    assert 'id="id_name_error"' in html
    assert "&lt;i&gt;too long" in html
    assert "<i>" not in html + summary


def test_a_group_of_choices_is_a_fieldset():
    html = render_to_string("parts/field.html", {"field": SampleForm()["size"]})
    assert "<legend>Size</legend>" in html


def test_the_pager_keeps_the_rest_of_the_query(rf):
    page = Paginator(range(100), 10).page(2)
    request = rf.get("/records/", {"month": "2026-11"})
    html = render_to_string("parts/pager.html", {"page": page, "request": request}, request)
    assert "month=2026-11&amp;page=3" in html
    assert "Page 2 of 10, 100 in all" in html


def test_the_base_page_renders_without_a_request():
    html = render_to_string("base.html")
    assert 'href="#main"' in html
    assert "style=" not in html
