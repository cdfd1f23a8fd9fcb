"""What a transfer is of, as one text: `dataset:CODE`, `fetch:CODE` and `output:CODE` of a lease."""

DATASET, FETCH, OUTPUT = "dataset", "fetch", "output"


def of_dataset(code: str) -> str:
    return f"{DATASET}:{code}"


def of_fetch(lease: str) -> str:
    return f"{FETCH}:{lease}"


def of_output(lease: str) -> str:
    return f"{OUTPUT}:{lease}"


def codes_of(kind: str, subjects: list[str]) -> list[str]:
    """The codes of the subjects of one kind."""
    return [subject.partition(":")[2] for subject in subjects if subject.startswith(f"{kind}:")]
