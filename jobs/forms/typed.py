"""The form as it was typed: field name -> values. A draft keeps it; secrets are never in it."""

import re

from django import forms
from django.http import QueryDict

type Typed = dict[str, list[str]]

NOT_KEPT = {"csrfmiddlewaretoken", "action", "form_key", "job"}
_SINGLE = re.compile(r"[a-z_]{1,20}")
_ROW = re.compile(r"(?:vars|inputs|paths)-(?:0|[1-9]\d{0,3})-[a-z]{1,10}")
_SECRET_VALUE = re.compile(r"vars-\d+-value")


def typed_of(data: QueryDict) -> Typed:
    """Every value as text that any database can keep; what a secret's box held is left out.

    PostgreSQL cannot store a NUL: a draft has U+FFFD in its place. Submitting refuses it before.
    """
    return {
        name: [value.replace("\0", "\ufffd") for value in values]
        for name, values in data.lists()
        if _belongs(name) and not _is_secret(name, data)
    }


def _belongs(name: str) -> bool:
    """Whether the name looks like a field of the form."""
    return name not in NOT_KEPT and bool(_SINGLE.fullmatch(name) or _ROW.fullmatch(name))


def _is_secret(name: str, data: QueryDict) -> bool:
    if not _SECRET_VALUE.fullmatch(name):
        return False
    return name.removesuffix("value") + "secret" in data


def as_query(typed: Typed) -> QueryDict:
    query = QueryDict(mutable=True)
    for name, values in typed.items():
        query.setlist(name, list(values))
    return query


def initial_of(form: type[forms.Form], typed: Typed, prefix: str = "") -> dict[str, object]:
    """What an unbound form shows for a draft: the typed text, right or wrong."""
    start = f"{prefix}-" if prefix else ""
    initial: dict[str, object] = {}
    for name, field in form.base_fields.items():
        values = typed.get(start + name)
        if isinstance(field, forms.BooleanField):
            initial[name] = values is not None
        elif isinstance(field, forms.MultipleChoiceField):
            initial[name] = values or []
        elif values:
            initial[name] = values[-1]
        else:
            initial[name] = ""
    return initial


def with_row(typed: Typed, prefix: str) -> Typed:
    """The same with one more empty row; its hidden mark makes the row exist."""
    following = max(row_numbers(typed, prefix), default=-1) + 1
    return typed | {f"{prefix}-{following}-row": ["1"]}


def without_row(typed: Typed, prefix: str, number: int) -> Typed:
    start = f"{prefix}-{number}-"
    return {name: values for name, values in typed.items() if not name.startswith(start)}


def row_numbers(typed: Typed | QueryDict, prefix: str) -> list[int]:
    """The numbers of the rows that were sent, in order; at most four digits count."""
    pattern = re.compile(rf"{prefix}-(\d{{1,4}})-\w+")
    return sorted({int(m[1]) for name in typed if (m := pattern.fullmatch(name))})
