"""One form per act on a team. Passwords go through Django's validators."""

from django import forms
from django.contrib.auth.password_validation import (
    password_validators_help_text_html,
    validate_password,
)

from portal.teams.account_forms import MISSING
from portal.teams.accounts import local_path
from portal.teams.models import Membership, User

LONGEST_PASSWORD = 256


class InviteForm(forms.Form):
    email = forms.EmailField(
        label="Email address",
        max_length=254,
        error_messages={"required": "Give the address of the person to invite."},
        help_text="The invitation works for an account with this address only.",
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    role = forms.ChoiceField(
        label="Role",
        error_messages={"required": "Say whether it is a member or an admin."},
        choices=Membership.Role.choices,
        initial=Membership.Role.MEMBER,
        help_text="Members declare jobs and datasets and see all of the team's. "
        "Admins also invite and remove members.",
    )

    def clean_email(self) -> str:
        return self.cleaned_data["email"].lower()


def read_address(text: str) -> str:
    """An address from a command line, in lower case. Raises ValidationError."""
    return forms.EmailField(max_length=254).clean(text).lower()


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Membership.Role.choices)


class SwitchForm(forms.Form):
    """`team` is a team's code. A `next` that leads away from the portal counts as absent."""

    team = forms.CharField(max_length=16)
    next = forms.CharField(max_length=2000, required=False)

    def clean_next(self) -> str:
        return local_path(self.cleaned_data["next"])


class NewAccountForm(forms.Form):
    """The password of an account that an invitation makes."""

    password1 = forms.CharField(
        label="Password",
        strip=False,
        error_messages={"required": MISSING["password1"]},
        max_length=LONGEST_PASSWORD,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    password2 = forms.CharField(
        label="The same password again",
        strip=False,
        error_messages={"required": MISSING["password2"]},
        max_length=LONGEST_PASSWORD,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args, email: str, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.email = email
        self.fields["password1"].help_text = password_validators_help_text_html()

    def clean_password1(self) -> str:
        password = self.cleaned_data["password1"]
        validate_password(password, User(email=self.email))
        return password

    def clean(self) -> dict:
        data = super().clean() or {}
        one, other = data.get("password1"), data.get("password2")
        if one and other and one != other:
            self.add_error("password2", "The two passwords differ.")
        return data
