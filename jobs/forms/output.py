"""Output: which paths come back, how large they may be and how long they are kept."""

from django import forms
from django.core.exceptions import ValidationError

from jobs.forms.data import clean_pattern
from jobs.forms.fields import GibField, WholeField
from jobs.forms.rows import RowForm

MOST_PATHS = 50


class OutputForm(forms.Form):
    use_required_attribute = False

    keep_days = WholeField(
        what="Days",
        label="Days the output is kept",
        least=1,
        most=36_500,
        required=False,
        help_text="Empty: until your team deletes it.",
    )
    limit = GibField(
        what="The size limit",
        label="Largest output, GiB",
        least="0.001",
        most=1_048_576,
        initial="10",
        help_text="A piece that writes more fails.",
    )
    keep_log = forms.BooleanField(label="Keep the log", required=False, initial=True)
    keep_code = forms.BooleanField(label="Keep the code", required=False, initial=True)


class PathForm(RowForm):
    SAYS = ("pattern",)
    pattern = forms.CharField(
        label="Path or pattern under /output",
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    optional = forms.BooleanField(label="May be missing", required=False)

    def clean_pattern(self) -> str:
        pattern = clean_pattern(self.cleaned_data["pattern"], "A path")
        if not pattern:
            raise ValidationError("Write a path, or remove the row.")
        return pattern
