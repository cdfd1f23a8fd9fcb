"""Forms of sync: a connection, and what a new dataset takes from a source.

A key and its secret go in and are never written into a page again, not even beside an error.
"""

from typing import Any

from django import forms

from portal.base.errors import DomainError
from staging import names
from staging.forms import NewDatasetForm
from staging.sync import connections
from staging.sync.sources import patterns_of
from staging.sync.states import Access, SourceKind
from staging.sync.urls import read_list

PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
AGAIN = "It is kept encrypted and is not shown again, here or anywhere."


class WriteOnlyInput(forms.TextInput):
    """A text field that never shows what was typed into it before."""

    def get_context(self, name: str, value: Any, attrs: dict | None) -> dict[str, Any]:
        return super().get_context(name, None, attrs)


def _secret_input() -> forms.PasswordInput:
    return forms.PasswordInput(render_value=False, attrs={"autocomplete": "new-password"})


def refuse(error: DomainError) -> forms.ValidationError:
    return forms.ValidationError(str(error))


class ChangeConnectionForm(forms.Form):
    """What may change of a connection. Its endpoint and bucket may not: another is made then."""

    name = forms.CharField(
        label="Name",
        max_length=120,
        help_text="What your team will know it by.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    region = forms.CharField(
        label="Region",
        max_length=60,
        required=False,
        help_text="As the store names it. Empty: us-east-1, which self-hosted stores take.",
        widget=forms.TextInput(attrs=PLAIN),
    )
    path_style = forms.BooleanField(
        label="The bucket is a part of the path",
        required=False,
        help_text="Most stores. Without it the bucket is a part of the host's name.",
    )
    md5_etags = forms.BooleanField(
        label="The ETag of a plain upload is its MD5 sum",
        required=False,
        help_text="True of most stores; what arrives is compared with it. Take it away for a "
        "bucket that is encrypted with keys of a key service.",
    )
    key_id = forms.CharField(
        label="Key",
        max_length=1000,
        required=False,
        help_text=f"Also called access key ID. {AGAIN}",
        widget=WriteOnlyInput(attrs=PLAIN),
    )
    secret = forms.CharField(
        label="Secret",
        max_length=3000,
        required=False,
        help_text=AGAIN,
        widget=_secret_input(),
    )

    def clean_name(self) -> str:
        return _checked(connections.plain, self.cleaned_data["name"], "name", 120)

    def clean_region(self) -> str:
        text = self.cleaned_data["region"] or "us-east-1"
        return _checked(connections.plain, text, "region", 60)

    def clean(self) -> dict:
        found = super().clean() or {}
        if bool(found.get("key_id")) != bool(found.get("secret")):
            missing = "secret" if found.get("key_id") else "key_id"
            if missing in found:
                self.add_error(missing, "Key and secret are changed together. Enter both again.")
        return found


class NewConnectionForm(ChangeConnectionForm):
    endpoint = forms.CharField(
        label="Endpoint",
        max_length=250,
        help_text="The address of the store, such as https://s3.example.org.",
        widget=forms.TextInput(attrs={**PLAIN, "inputmode": "url"}),
    )
    bucket = forms.CharField(
        label="Bucket", max_length=255, widget=forms.TextInput(attrs=dict(PLAIN))
    )
    prefix = forms.CharField(  # type: ignore[assignment]
        label="Bound to the folder",
        max_length=1000,
        required=False,
        help_text="The most that may be read through it. Empty: the whole bucket.",
        widget=forms.TextInput(attrs=dict(PLAIN)),
    )
    access = forms.ChoiceField(
        label="Right to read",
        choices=[(a.value, str(a.label).capitalize()) for a in (Access.KEYS, Access.ANONYMOUS)],
        initial=Access.KEYS.value,
        widget=forms.RadioSelect,
    )
    field_order = ("name", "endpoint", "bucket", "region", "prefix", "path_style")

    def clean_endpoint(self) -> str:
        return _checked(connections.endpoint_of, self.cleaned_data["endpoint"])

    def clean_bucket(self) -> str:
        return _checked(connections.bucket_name, self.cleaned_data["bucket"])

    def clean_prefix(self) -> str:
        return _checked(connections.folder_prefix, self.cleaned_data["prefix"])

    def clean(self) -> dict:
        found = forms.Form.clean(self) or {}
        for name in ("key_id", "secret"):
            if name not in found or "access" not in found:
                continue
            if found["access"] == Access.KEYS and not found[name]:
                self.add_error(name, "Enter it; this page never keeps one.")
            if found["access"] == Access.ANONYMOUS and found[name]:
                self.add_error(name, "A public bucket needs none. Leave it empty.")
        return found


def _checked(check: Any, *given: Any) -> Any:
    try:
        return check(*given)
    except DomainError as error:
        raise refuse(error) from error


class SyncForm(NewDatasetForm):
    """What a new dataset takes from one source. `seen` carries the preview, signed."""

    prefix = forms.CharField(  # type: ignore[assignment]
        label="Folder",
        max_length=1000,
        required=False,
        help_text="What is below it is taken, and names begin after it. Empty: everything.",
        widget=forms.TextInput(attrs=dict(PLAIN)),
    )
    addresses = forms.CharField(
        label="Addresses",
        help_text="One HTTPS address a line, then its size in bytes and its SHA-256 where they are "
        "known. At most 10,000 lines; # begins a comment.",
        widget=forms.Textarea(attrs={**PLAIN, "rows": 8, "class": "code"}),
    )
    include = forms.CharField(
        label="Take only",
        required=False,
        help_text="One pattern a line: *.csv at any depth, a/b/ for a folder. Empty: every file.",
        widget=forms.Textarea(attrs={**PLAIN, "rows": 3, "class": "code"}),
    )
    exclude = forms.CharField(
        label="Leave out",
        required=False,
        help_text="Patterns as above. They win over those.",
        widget=forms.Textarea(attrs={**PLAIN, "rows": 3, "class": "code"}),
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args, kind: SourceKind, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        del self.fields["prefix" if kind == SourceKind.URLS else "addresses"]

    def clean_prefix(self) -> str:
        prefix = _checked(connections.folder_prefix, self.cleaned_data["prefix"])
        problem = names.problem(prefix.rstrip("/")) if prefix else ""
        if problem and self.kind == SourceKind.FOLDER:
            raise forms.ValidationError(problem)
        return prefix

    def clean_addresses(self) -> str:
        text = self.cleaned_data["addresses"]
        _checked(read_list, text)
        return text

    def _patterns(self, field: str) -> tuple[str, ...]:
        return tuple(_checked(patterns_of, tuple(self.cleaned_data[field].splitlines())))

    def clean_include(self) -> tuple[str, ...]:
        return self._patterns("include")

    def clean_exclude(self) -> tuple[str, ...]:
        return self._patterns("exclude")
