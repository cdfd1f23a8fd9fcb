"""The sign-in library's forms in the portal's words: a label once, and no placeholder."""

from allauth.account import forms as account


class _PlainWords:
    fields: dict

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs.pop("placeholder", None)
            field.label = str(field.label).capitalize()
        if "password2" in self.fields:
            self.fields["password2"].label = "The same password again"


class LoginForm(_PlainWords, account.LoginForm):
    pass


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
