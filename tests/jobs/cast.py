"""What the tests of the job form send: a form that is right, to be changed in one place."""

from django.core.files.uploadedfile import SimpleUploadedFile

from staging.models import Dataset, File

GOOD = {
    "action": "submit",
    "name": "Count tokens",
    "work_kind": "script",
    "language": "python",
    "script": "print('hello')",
    "runtime": "node",
    "gpus": "2",
    "hours": "4",
    "shards": "3",
    "cpus": "2",
    "memory": "4",
    "scratch": "10",
    "paths-0-row": "1",
    "paths-0-pattern": "stats/**",
    "limit": "10",
    "keep_log": "on",
    "keep_code": "on",
}


def form_data(**changes: object) -> dict[str, object]:
    """GOOD with changes. In names, "__" stands for a dash; None leaves a field out."""
    named = {name.replace("__", "-"): value for name, value in changes.items()}
    return {name: value for name, value in (GOOD | named).items() if value is not None}


def with_files(dataset: Dataset, sizes: dict[str, int]) -> Dataset:
    """File rows without bytes in the store: enough for what forms count and show."""
    for position, path in enumerate(sorted(sizes, key=str.encode)):
        File.objects.create(
            dataset=dataset,
            path=path,
            size=sizes[path],
            digest="a" * 64,
            state="staged",
            position=position,
        )
    return dataset


def upload(name: str, content: bytes = b"print(1)\n") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)
