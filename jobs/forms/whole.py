"""The four parts as one form: what is bound together, checked across, and listed in the summary."""

from collections.abc import Iterator
from dataclasses import dataclass

from django import forms
from django.conf import settings
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from jobs.forms.data import MOST_INPUTS, InputForm, Offer
from jobs.forms.output import MOST_PATHS, OutputForm, PathForm
from jobs.forms.request import RequestForm
from jobs.forms.rows import Rows
from jobs.forms.typed import Typed, initial_of
from jobs.forms.work import MOST_VARIABLES, VariableForm, WorkForm
from jobs.models import WorkKind
from portal.teams.models import Team
from staging.models import Dataset
from staging.states import DatasetState


@dataclass(frozen=True)
class Problem:
    """One line of the error summary: the id of the field it leads to, and the sentence."""

    field_id: str
    sentence: str


class JobForm:
    """Bound to what was sent (`data`, `files`), or showing a draft as it was `typed`, or new."""

    def __init__(
        self,
        *,
        team: Team,
        data: QueryDict | None = None,
        files: MultiValueDict | None = None,
        typed: Typed | None = None,
        secrets: tuple[str, ...] = (),
        code: Dataset | None = None,
    ) -> None:
        self.team, self.secrets, self.code = team, secrets, code
        self.is_bound = data is not None
        self.refusals: list[Problem] = []
        self.work = WorkForm(
            data, files, kept_code=code is not None, **self._shown(WorkForm, typed)
        )
        self.request = RequestForm(data, **self._shown(RequestForm, typed))
        self.output = OutputForm(data, **self._output_shown(typed))
        self.variables = Rows(
            VariableForm, "vars", most=MOST_VARIABLES, what="variables",
            data=data, typed=typed, stored=secrets,
        )  # fmt: skip
        self.inputs = Rows(
            InputForm, "inputs", most=MOST_INPUTS, what="inputs",
            data=data, typed=typed, default=[{}], offer=Offer(team),
        )  # fmt: skip
        self.paths = Rows(
            PathForm, "paths", most=MOST_PATHS, what="output paths",
            data=data, typed=typed, default=[{"pattern": "**"}],
        )  # fmt: skip

    @staticmethod
    def _shown(form: type[forms.Form], typed: Typed | None) -> dict:
        return {} if typed is None else {"initial": initial_of(form, typed)}

    def _output_shown(self, typed: Typed | None) -> dict:
        if typed is not None:
            return self._shown(OutputForm, typed)
        return {"initial": {"keep_days": self.team.policy_days or ""}}

    @property
    def single(self) -> list[forms.Form]:
        return [self.work, self.request, self.output]

    @property
    def rows(self) -> list[Rows]:
        return [self.variables, self.inputs, self.paths]

    def is_valid(self) -> bool:
        """Every part is checked, so that every message is on the page at once."""
        parts = [form.is_valid() for form in self.single] + [rows.is_valid() for rows in self.rows]
        self._check_across()
        return self.is_bound and all(parts) and not self.problems

    def _check_across(self) -> None:
        self.variables.refuse_repeats("name", "Another variable has this name.")
        self.inputs.refuse_repeats("mount", "Another input has this folder name.", any_case=True)
        self.paths.refuse_repeats("pattern", "This path is named twice.")
        if not self.paths.said:
            self.refuse("paths", "Name at least one path that comes back; ** is everything.")
        self._check_split()
        self._check_finish()

    def _check_split(self) -> None:
        shards = self.request.cleaned_data.get("shards") or 1
        for form in self.inputs.said:
            values = form.cleaned_data
            known = "files" in values and values["dataset"].state == DatasetState.STAGED
            if values.get("split") and known and 0 < values["files"] < shards:
                form.add_error(
                    "split",
                    f"{values['files']} files cannot be split between {shards} pieces; "
                    "some would have nothing to do.",
                )

    def _check_finish(self) -> None:
        gpus = self.request.cleaned_data.get("finish_gpus") or 0
        no_command = not self.work.cleaned_data.get("finish_command")
        if gpus and no_command and "finish_command" not in self.work.errors:
            self.request.add_error("finish_gpus", "There is no finish command to use these GPUs.")

    def refuse(self, field_id: str, sentence: str) -> None:
        """A refusal that belongs to the whole form, such as a limit of the team."""
        self.refusals.append(Problem(field_id, sentence))

    @property
    def problems(self) -> list[Problem]:
        """Every message in the order of the page."""
        return list(self._problems()) if self.is_bound else []

    def _problems(self) -> Iterator[Problem]:
        yield from self.refusals
        yield from _of_form(self.work)
        yield from self._of_rows(self.variables)
        yield from self._of_rows(self.inputs)
        yield from _of_form(self.request)
        yield from self._of_rows(self.paths)
        yield from _of_form(self.output)

    @staticmethod
    def _of_rows(rows: Rows) -> Iterator[Problem]:
        yield from (Problem(rows.prefix, sentence) for sentence in rows.errors)
        for form in rows.said:
            yield from _of_form(form)

    @property
    def has_secrets(self) -> bool:
        """Whether a secret's value was sent that the page cannot show again."""
        return any(form["secret"].value() and form["value"].value() for form in self.variables.said)

    @property
    def code_limit(self) -> int:
        """Bytes."""
        return settings.LARGEST_CODE_BYTES

    @property
    def retention_days(self) -> int | None:
        return self.team.policy_days

    @property
    def work_more_is_open(self) -> bool:
        """Whether something under Work's More was said or is wrong."""
        said = self.work["finish_command"].value() or len(self.variables)
        return bool(said or "finish_command" in self.work.errors or "runtime" in self.work.errors)

    @property
    def kind(self) -> str:
        return str(self.work["work_kind"].value() or WorkKind.SCRIPT)


def _of_form(form: forms.Form) -> Iterator[Problem]:
    for name, sentences in form.errors.items():
        field_id = form[name].id_for_label if name in form.fields else ""
        yield from (Problem(field_id or form[name].auto_id, str(text)) for text in sentences)
