"""The sign-in library's forms in the portal's words: a label once, and no placeholder."""

from allauth.account import forms as account

# What is said where nothing was typed, by the name of the field.
MISSING = {
    "login": "Type the address of your account.",
    "email": "Type the address of your account.",
    "password": "Type your password.",
    "oldpassword": "Type your present password.",
    "password1": "Choose a password.",
    "password2": "Type the same password again.",
}


class _PlainWords:
    fields: dict

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.widget.attrs.pop("placeholder", None)
            field.label = str(field.label).capitalize()
            if name in MISSING:
                field.error_messages["required"] = MISSING[name]
        if "password2" in self.fields:
            self.fields["password2"].label = "The same password again"


class LoginForm(_PlainWords, account.LoginForm):
    """The way to a new password stands after the button: Tab goes from field to field to it."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].help_text = ""
        if not self.is_bound:  # then the summary of what is wrong has the focus
            self.fields["login"].widget.attrs["autofocus"] = True


class ReauthenticateForm(_PlainWords, account.ReauthenticateForm):
    pass


class ChangePasswordForm(_PlainWords, account.ChangePasswordForm):
    pass


class SetPasswordForm(_PlainWords, account.SetPasswordForm):
    pass


class ResetPasswordForm(_PlainWords, account.ResetPasswordForm):
    pass


class ResetPasswordKeyForm(_PlainWords, account.ResetPasswordKeyForm):
    pass
