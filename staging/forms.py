"""Forms of staging: one per action; `cleaned_data` holds domain values."""

from django import forms

from portal.base.unseen import is_blank, unseen_in
from staging.datasets import LONGEST_NAME, MOST_DAYS


class NewDatasetForm(forms.Form):
    name = forms.CharField(
        label="Name",
        error_messages={"required": "Give the dataset a name."},
        max_length=LONGEST_NAME,
        help_text="What your team will know this data by.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    keep_days = forms.IntegerField(
        label="Days to keep it",
        required=False,
        min_value=0,
        max_value=MOST_DAYS,
        help_text="Counted from the moment it is verified. 0: until your team deletes it.",
    )

    def __init__(self, *args, policy: str = "", **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.fields["keep_days"].help_text += f" Empty: {policy}" if policy else ""

    def clean_name(self) -> str:
        name = " ".join(self.cleaned_data["name"].split())
        if found := unseen_in(name):
            raise forms.ValidationError(f"The name holds {found}, which cannot be seen.")
        if is_blank(name):
            raise forms.ValidationError("Give the dataset a name.")
        return name


class KeepForm(forms.Form):
    keep_days = forms.IntegerField(
        label="Days from now",
        error_messages={"required": "Say for how many days, or 0 for no date."},
        min_value=0,
        max_value=MOST_DAYS,
        help_text="0: no date, it stays until your team deletes it.",
    )
