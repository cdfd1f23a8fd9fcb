"""What the pages of acts share: the form that asks for a reason, and how long ago something was."""

from datetime import datetime

from django import forms
from django.utils import timezone

from portal.base.words import in_words


class ActForm(forms.Form):
    reason = forms.CharField(
        max_length=300,
        error_messages={"required": "Give a reason."},
        help_text="Stands in the node's history, and on its page while the act is in force.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )


def ago(at: datetime | None) -> str:
    return "never" if at is None else f"{in_words(timezone.now() - at)} ago"
