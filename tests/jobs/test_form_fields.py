"""Every field of the job form: wrong, missing, huge and hostile, each with its own sentence."""

from datetime import timedelta

import pytest
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from jobs.forms.whole import JobForm
from jobs.forms.work import LARGEST_SCRIPT
from staging.states import DatasetState
from tests.factories import make_dataset
from tests.jobs.cast import form_data, upload, with_files


def query(data: dict[str, object]) -> QueryDict:
    result = QueryDict(mutable=True)
    for name, value in data.items():
        result.setlist(name, value if isinstance(value, list) else [str(value)])
    return result


def checked(team, files: dict[str, list] | None = None, **changes) -> JobForm:
    form = JobForm(team=team, data=query(form_data(**changes)), files=MultiValueDict(files or {}))
    form.is_valid()
    return form


def sentences(form: JobForm) -> list[str]:
    return [problem.sentence for problem in form.problems]


GPUS = "GPUs must be a whole number from 0 to 1,024."
PIECES = "Pieces must be a whole number from 1 to 10,000."
CPUS = "CPUs must be a whole number from 1 to 1,024."
MEMORY = "Memory must be a number of GiB from 0.0625 to 65,536."
SCRATCH = "Scratch disk must be a number of GiB from 0.0625 to 1,048,576."
HOURS = "Write hours as 4, 0.5, 4h, 30 min or 1:30."
KIND = "Say whether the work is a script, a command line or code."
MOUNT = (
    "A folder name has letters, digits, “.”, “_” and “-” only, begins with a letter, "
    "a digit or “_”, and has at most 100 characters."
)
UNSEEN = ", which cannot be seen. Type it again."
LONG = "9" * 5000


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("name", "", "Give the job a name."),
        ("name", None, "Give the job a name."),
        ("name", "   ", "Give the job a name."),
        ("name", "x" * 121, "The name can have at most 120 characters."),
        ("name", "a\0b", "The name holds U+0000" + UNSEEN),
        ("name", "a\x1bb", "The name holds U+001B" + UNSEEN),
        ("name", "abc\u202ecod", "The name holds U+202E (right-to-left override)" + UNSEEN),
        ("name", "two\nlines", "The name holds U+000A" + UNSEEN),
        ("work_kind", None, KIND),
        ("work_kind", "magic", KIND),
        ("language", "perl", "The language must be Bash or Python."),
        ("script", "", "Write the script, or choose another kind of work."),
        ("script", None, "Write the script, or choose another kind of work."),
        ("script", "a\0b", "The script holds a NUL character. Remove it."),
        (
            "script",
            "x" * (LARGEST_SCRIPT + 1),
            "The script is 262,145 bytes long; at most 262,144 are accepted.",
        ),
        (
            "script",
            "é" * (LARGEST_SCRIPT // 2 + 1),
            "The script is 262,146 bytes long; at most 262,144 are accepted.",
        ),
        ("finish_command", "a\0b", "The finish command holds a NUL character. Remove it."),
        (
            "finish_command",
            "x" * 16385,
            "The finish command is 16,385 bytes long; at most 16,384 are accepted.",
        ),
        ("runtime", "docker", "Choose a runtime of the list."),
        ("gpus", "", GPUS),
        ("gpus", None, GPUS),
        ("gpus", "two", GPUS),
        ("gpus", "-1", GPUS),
        ("gpus", "1.5", GPUS),
        ("gpus", "1025", GPUS),
        ("gpus", LONG, GPUS),
        ("gpus", "٣", GPUS),
        ("gpus", "1e3", GPUS),
        ("gpus", "\0", GPUS),
        ("hours", "", "Say for how many hours. " + HOURS),
        ("hours", None, "Say for how many hours. " + HOURS),
        ("hours", "later", HOURS),
        ("hours", "-1", HOURS),
        ("hours", "0", "The time must be at least one second."),
        ("hours", "9000", "The time can be at most 366 days (8784 hours)."),
        ("hours", LONG, HOURS),
        ("hours", "nan", HOURS),
        ("hours", "1e400", HOURS),
        ("hours", "<script>", HOURS),
        ("shards", "", PIECES),
        ("shards", None, PIECES),
        ("shards", "0", PIECES),
        ("shards", "10001", PIECES),
        ("needed_by", "soon", "Write the date and time as 2026-11-30 18:00, in UTC."),
        ("needed_by", "2001-01-01T00:00", "This time has passed. Choose one in the future."),
        ("needed_by", "9" * 400, "Write the date and time as 2026-11-30 18:00, in UTC."),
        ("gpu_memory", "lots", "GPU memory must be a number of GiB from 0 to 4,096."),
        ("gpu_memory", "4097", "GPU memory must be a number of GiB from 0 to 4,096."),
        ("cpus", "0", CPUS),
        ("cpus", None, CPUS),
        ("memory", "", MEMORY),
        ("memory", "0", MEMORY),
        ("memory", "inf", MEMORY),
        ("memory", LONG, MEMORY),
        ("scratch", None, SCRATCH),
        ("scratch", "-5", SCRATCH),
        ("parallel", "0", "The most pieces at once must be a whole number from 1 to 10,000."),
        ("retries", "11", "Retries must be a whole number from 0 to 10."),
        (
            "finish_gpus",
            "x",
            "GPUs of the finish step must be a whole number from 0 to 1,024.",
        ),
        ("finish_gpus", "2", "There is no finish command to use these GPUs."),
        ("keep_days", "0", "Days must be a whole number from 1 to 36,500."),
        ("keep_days", "forever", "Days must be a whole number from 1 to 36,500."),
        ("limit", "", "The size limit must be a number of GiB from 0.001 to 1,048,576."),
        ("limit", "1e9", "The size limit must be a number of GiB from 0.001 to 1,048,576."),
        (
            "paths__0__pattern",
            None,
            "Name at least one path that comes back; ** is everything.",
        ),
        ("paths__0__pattern", "", "Name at least one path that comes back; ** is everything."),
        ("paths__0__pattern", "/etc/passwd", "A path must be relative, like results/*.csv."),
        ("paths__0__pattern", "~/x", "A path must be relative, like results/*.csv."),
        ("paths__0__pattern", "a\\b", "A path must be relative, like results/*.csv."),
        (
            "paths__0__pattern",
            "a/../../b",
            "A path must not contain “.”, “..” or empty parts.",
        ),
        ("paths__0__pattern", "..", "A path must not contain “.”, “..” or empty parts."),
        ("paths__0__pattern", "a//b", "A path must not contain “.”, “..” or empty parts."),
        ("paths__0__pattern", "x" * 501, "A path can have at most 500 characters."),
        ("paths__0__pattern", "a\x07b", "A path holds U+0007" + UNSEEN),
    ],
)
def test_each_wrong_value_has_its_sentence(team, field, value, sentence):
    assert sentences(checked(team, **{field: value})) == [sentence]


@pytest.mark.parametrize(
    ("kind", "field", "sentence"),
    [
        ("command", "command", "Write the command line, or choose another kind of work."),
        ("code", "start", "Say which command starts the code."),
    ],
)
def test_each_kind_of_work_needs_its_field(team, kind, field, sentence):
    files = {"code_zip": [], "code_folder": [upload("a.py")]}
    form = checked(team, files, work_kind=kind, **{field: " \n "})
    assert sentence in sentences(form)


def test_code_needs_files_and_only_one_way(team):
    missing = checked(team, work_kind="code", start="x")
    assert sentences(missing) == ["Choose a zip file or a folder with the code."]
    both = {"code_zip": [upload("c.zip")], "code_folder": [upload("a.py")]}
    assert sentences(checked(team, both, work_kind="code", start="x")) == [
        "Choose a zip file or a folder, not both."
    ]


def test_missing_everything_is_a_list_of_sentences_and_no_error(team):
    form = JobForm(team=team, data=QueryDict(""), files=MultiValueDict())
    assert not form.is_valid()
    assert sentences(form) == [
        "Name at least one path that comes back; ** is everything.",
        "Give the job a name.",
        KIND,
        GPUS,
        "Say for how many hours. " + HOURS,
        PIECES,
        CPUS,
        MEMORY,
        SCRATCH,
        "The size limit must be a number of GiB from 0.001 to 1,048,576.",
    ]


NAME = "A variable's name has letters, digits and _ only, and does not begin with a digit."


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "Give the variable a name, or remove the row."),
        ("1ST", NAME),
        ("A-B", NAME),
        ("A=B", NAME),
        ("Ä", NAME),
        ("A B", NAME),
        ("A;rm", NAME),
        ("E31_DATA", "E31_DATA is set by the node and cannot be declared."),
        ("LD_PRELOAD", "LD_PRELOAD is set by the node and cannot be declared."),
        ("BASH_ENV", "BASH_ENV is set by the node and cannot be declared."),
        ("PATH", "PATH is set by the node and cannot be declared."),
        ("x" * 129, "The name can have at most 128 characters."),
        ("A\0", "The name holds U+0000" + UNSEEN),
    ],
)
@pytest.mark.parametrize("secret", [None, "on"])
def test_names_of_variables(team, name, sentence, secret):
    form = checked(
        team, vars__0__row="1", vars__0__name=name, vars__0__value="v", vars__0__secret=secret
    )
    assert sentences(form) == [sentence]


def test_values_of_variables(team):
    form = checked(team, vars__0__name="A", vars__0__value="x" * 32769)
    assert sentences(form) == ["The value is 32,769 bytes long; at most 32,768 are accepted."]
    form = checked(team, vars__0__name="A", vars__0__value="a\0")
    assert sentences(form) == ["The value holds a NUL character. Remove it."]
    form = checked(team, vars__0__name="A", vars__1__name="A")
    assert sentences(form) == ["Another variable has this name."]


def test_rows_have_a_limit(team):
    many = {f"vars__{n}__name": f"V{n}" for n in range(101)}
    assert sentences(checked(team, **many)) == ["At most 100 variables are accepted."]
    many = {f"paths__{n}__pattern": f"p{n}" for n in range(1, 51)}
    assert sentences(checked(team, **many)) == ["At most 50 output paths are accepted."]


def test_variables_that_differ_in_case_are_two(team):
    assert sentences(checked(team, vars__0__name="a", vars__1__name="A")) == []


@pytest.fixture
def dataset(team):
    return with_files(make_dataset(team), {"a/1.csv": 10, "a/2.csv": 20, "b/3.txt": 5})


def with_input(team, chosen, **changes) -> JobForm:
    row = {f"inputs__0__{name}": value for name, value in changes.items()}
    return checked(team, **({"inputs__0__dataset": chosen.code} | row))


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("dataset", "nonsense", "This dataset is not here any more. Choose another."),
        ("dataset", "a\0b", "This dataset is not here any more. Choose another."),
        ("mount", "a/b", MOUNT),
        ("mount", "..", MOUNT),
        ("mount", ".", MOUNT),
        ("mount", "/abs", MOUNT),
        ("mount", "-rf", MOUNT),
        ("mount", "x" * 101, MOUNT),
        ("mount", "naïve", MOUNT),
        ("mount", "a\0b", "Null characters are not allowed."),
        ("tops", "zzz/", "A ticked folder is not in this dataset. Tick again."),
        ("patterns", "../x", "A pattern must not contain “.”, “..” or empty parts."),
        ("patterns", "/x", "A pattern must be relative, like results/*.csv."),
        ("patterns", "x" * 501, "A pattern can have at most 500 characters."),
        ("patterns", "\n".join(["x"] * 101), "At most 100 patterns are accepted."),
        ("patterns", "a\0", "The patterns holds a NUL character. Remove it."),
        ("patterns", "*.parquet", "No file of Readings is in these folders or fits."),
        ("split", "bytes", "Choose whether pieces share or split the files."),
        ("after", "burn", "Choose whether the dataset is kept or deleted."),
    ],
)
def test_each_wrong_input_has_its_sentence(team, dataset, field, value, sentence):
    assert sentences(with_input(team, dataset, **{field: value})) == [sentence]


def test_an_input_without_a_dataset(team):
    form = checked(team, inputs__0__mount="here")
    assert sentences(form) == ["Choose a dataset, or remove the row."]


def test_two_inputs_in_one_folder(team, dataset):
    form = checked(
        team,
        inputs__0__dataset=dataset.code,
        inputs__0__mount="Here",
        inputs__1__dataset=dataset.code,
        inputs__1__mount="here",
    )
    assert sentences(form) == ["Another input has this folder name."]


def test_split_between_more_pieces_than_files(team, dataset):
    form = checked(
        team,
        shards="4",
        inputs__0__dataset=dataset.code,
        inputs__0__split="files",
    )
    assert sentences(form) == [
        "3 files cannot be split between 4 pieces; some would have nothing to do."
    ]


def test_a_dataset_on_its_way_out_is_not_offered(team):
    gone = make_dataset(team, state=DatasetState.EXPIRING)
    running = make_dataset(team, kind="output", state=DatasetState.TRANSFERRING)
    for dataset in (gone, running):
        assert sentences(with_input(team, dataset)) == [
            "This dataset is not here any more. Choose another."
        ]


def test_a_dataset_on_its_way_in_may_be_empty_yet(team):
    coming = make_dataset(team, state=DatasetState.TRANSFERRING)
    assert sentences(with_input(team, coming)) == []


def test_domain_values(team, dataset):
    form = with_input(team, dataset, tops=["a/"], patterns="*.txt\n\n", after="delete")
    assert sentences(form) == []
    row = form.inputs.said[0].cleaned_data
    assert (row["dataset"], row["mount"]) == (dataset, "readings")
    assert (row["patterns"], row["files"], row["bytes"]) == (["a/", "*.txt"], 3, 35)
    request = form.request.cleaned_data
    assert (request["hours"], request["memory"]) == (timedelta(hours=4), 4 * 2**30)
    assert request["needed_by"] is None
