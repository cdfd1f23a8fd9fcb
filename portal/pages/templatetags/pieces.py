"""Names and links of pieces, and the words for held time that is not counted."""

from django import template
from django.urls import reverse

from nodes.states import LeaseReason

register = template.Library()


@register.simple_tag
def piece_name(kind: str, index: int) -> str:
    return "finish" if kind == "finish" else str(index)


@register.simple_tag
def piece_log(code: str, kind: str, index: int) -> str:
    """Where the log of a piece is."""
    return reverse("job_log", kwargs={"code": code, "shard": piece_name(kind, index)})


@register.filter
def uncounted(reason: str) -> str:
    """Why held time is not counted, as a sentence."""
    if reason == "past_the_window":
        return "Time past the output window is not counted."
    label = LeaseReason(reason).label if reason in LeaseReason.values else reason
    return f"Not counted: {label}"


@register.filter
def seconds(milliseconds: int | None) -> str:
    """Whole milliseconds as seconds with three digits, so that sums can be checked by eye."""
    return "" if milliseconds is None else f"{milliseconds / 1000:,.3f}"
