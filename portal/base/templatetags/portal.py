"""What templates share: numbers in words, times, and states as shape + word + color."""

from datetime import UTC, datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from portal.base import words
from portal.base.icons import ICONS, look_of

register = template.Library()


@register.filter(name="bytes")
def in_bytes(number: int | None) -> str:
    """1500000 -> 1.5 MB"""
    return "" if number is None else words.in_bytes(int(number))


@register.filter
def declared(number: int | None) -> str:
    """Bytes as they were declared, in the form's unit: 1610612736 -> 1.5 GiB"""
    return "" if number is None else words.in_gib(number)


@register.filter
def duration(length: timedelta | int | None) -> str:
    """A timedelta or milliseconds -> h:mm:ss"""
    return "" if length is None else words.in_hms(length)


@register.filter
def in_words(value: timedelta | None) -> str:
    """A timedelta in its largest fitting unit: 3 min"""
    return "" if value is None else words.in_words(value)


@register.filter
def hours(milliseconds: int | None) -> str:
    """Milliseconds (of held time, or of GPU time) -> hours: 1.25"""
    return "" if milliseconds is None else words.in_hours(milliseconds)


@register.filter
def count(number: int | None) -> str:
    """12345 -> 12,345"""
    return "" if number is None else f"{number:,}"


@register.filter
def age(at: datetime | None) -> str:
    """How long ago, in words; a time that never came reads "never"."""
    return "never" if at is None else f"{words.in_words(timezone.now() - at)} ago"


@register.filter
def ahead(at: datetime | None) -> str:
    """How long until, in words."""
    if at is None:
        return ""
    left = at - timezone.now()
    return f"in {words.until(left)}" if left > timedelta(0) else "now"


@register.filter
def foreseen(at: datetime | None) -> str:
    """As `ahead`, of a prediction: one that has passed promises nothing any more."""
    if at is None or at > timezone.now():
        return ahead(at)
    return f"passed {age(at)}; not known anew yet"


@register.simple_tag
def icon(name: str) -> SafeString:
    """An inline icon; it carries no meaning that the text beside it lacks."""
    return format_html(
        '<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" '
        'focusable="false">{}</svg>',
        mark_safe(ICONS[name]),  # noqa: S308  drawn in icons.py, no input in it
    )


@register.simple_tag
def status(state: str, outcome: str = "") -> SafeString:
    """A state as shape + word + color; an ended one shows its outcome."""
    look = look_of(str(state), str(outcome or ""))
    return format_html(
        '<span class="status status-{}">{}<span>{}</span></span>',
        look.tone,
        icon(look.icon),
        look.word,
    )


@register.simple_tag
def status_word(state: str, outcome: str = "") -> str:
    """The word alone, for titles and announcements."""
    return look_of(str(state), str(outcome or "")).word


@register.simple_tag
def when(at: datetime | None) -> SafeString | str:
    """A time in UTC; the script time.js adds the reader's own time on hover."""
    if at is None:
        return ""
    return format_html('<time datetime="{}">{}</time>', at.isoformat(), words.in_utc(at))


@register.simple_tag(takes_context=True)
def nav_link(context: template.Context, url: str, label: str) -> SafeString | str:
    """A link of the navigation, marked when the page is at or below it; nothing without a URL."""
    if not url:
        return ""
    path = getattr(context.get("request"), "path", "")
    here = path.startswith(url) if url != "/" else path == url
    current = mark_safe(' aria-current="page"') if here else ""
    return format_html('<a href="{}"{}>{}</a>', url, current, label)


@register.simple_tag
def clock(at: datetime | None) -> SafeString | str:
    """The time of day in UTC, for steps of a job whose days stand elsewhere on the page."""
    if at is None:
        return ""
    text = at.astimezone(UTC).strftime("%H:%M:%S")
    return format_html('<time datetime="{}">{} UTC</time>', at.isoformat(), text)


@register.filter
def silence(at: datetime | None) -> str:
    """How long it has been silent since `at`, in words."""
    return "" if at is None else words.in_words(timezone.now() - at)


@register.simple_tag
def tone(state: str, outcome: str = "") -> str:
    return f"tone-{look_of(state, outcome).tone}"


@register.simple_tag
def shape(state: str, outcome: str = "") -> SafeString:
    """The icon of a state alone, where its word stands beside it or is read out."""
    return icon(look_of(state, outcome).icon)
