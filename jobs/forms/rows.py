"""Rows of the same small form: variables, inputs, output paths.

There is no count to tamper with: a row exists when a field of its number was sent.
"""

from collections.abc import Iterator

from django import forms
from django.http import QueryDict

from jobs.forms.typed import Typed, initial_of, row_numbers


class RowForm(forms.Form):
    """One row. `said` is True when a person put anything into it; an empty row is left out."""

    use_required_attribute = False
    SAYS: tuple[str, ...] = ()  # the fields whose content makes a row count
    # Stands in the page even when nothing is ticked or typed, so that the row is sent.
    row = forms.CharField(required=False, initial="1", widget=forms.HiddenInput)

    @property
    def number(self) -> str:
        return str(self.prefix).rpartition("-")[2]

    @property
    def said(self) -> bool:
        if not self.is_bound:
            return any(self.initial.get(name) for name in self.SAYS)
        return any(self._sent(name) not in ([], [""]) for name in self.SAYS)

    def _sent(self, name: str) -> list[str]:
        return self.data.getlist(self.add_prefix(name))  # type: ignore[attr-defined]


class Rows[F: RowForm]:
    def __init__(
        self,
        form_class: type[F],
        prefix: str,
        *,
        most: int,
        what: str,
        data: QueryDict | None = None,
        typed: Typed | None = None,
        default: list[dict[str, object]] | None = None,
        **context: object,
    ) -> None:
        self.form_class, self.prefix, self.most, self.what = form_class, prefix, most, what
        self.context = context
        self.errors: list[str] = []
        self.forms = self._build(data, typed, default or [])

    def _build(
        self, data: QueryDict | None, typed: Typed | None, default: list[dict[str, object]]
    ) -> list[F]:
        if data is not None:
            numbers = self._within(row_numbers(data, self.prefix))
            return [self._sent_form(str(n), data) for n in numbers]
        if typed is None:
            return [self.form(str(n), initial=row) for n, row in enumerate(default)]
        numbers = self._within(row_numbers(typed, self.prefix))
        return [
            self.form(str(n), initial=initial_of(self.form_class, typed, f"{self.prefix}-{n}"))
            for n in numbers
        ]

    def _sent_form(self, number: str, data: QueryDict) -> F:
        """An empty row is shown again as it was, without being asked for anything."""
        form = self.form(number, data=data)
        return form if form.said else self.form(number)

    def _within(self, numbers: list[int]) -> list[int]:
        if len(numbers) > self.most:
            self.errors.append(f"At most {self.most} {self.what} are accepted.")
        return numbers[: self.most]

    def form(self, number: str, **kwargs: object) -> F:
        return self.form_class(prefix=f"{self.prefix}-{number}", **kwargs, **self.context)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[F]:
        return iter(self.forms)

    def __len__(self) -> int:
        return len(self.forms)

    @property
    def said(self) -> list[F]:
        return [form for form in self.forms if form.said]

    @property
    def template(self) -> F:
        """The empty row that the page's script copies."""
        return self.form("__n__")

    def is_valid(self) -> bool:
        return all([form.is_valid() for form in self.said]) and not self.errors

    def refuse_repeats(self, field: str, sentence: str, *, any_case: bool = False) -> None:
        """Add `sentence` to each row whose value of `field` an earlier row has."""
        seen: set[str] = set()
        for form in self.said:
            value = str(form.cleaned_data.get(field) or "")
            value = value.casefold() if any_case else value
            if value and value in seen:
                form.add_error(field, sentence)
            seen.add(value)
