"""Values that a form field may get from somebody who means no good, or from a broken program."""

HOSTILE = {
    "missing": None,
    "empty": "",
    "blank": "   ",
    "nul": "a\0b@x.example",
    "only_nul": "\0",
    "surrogate_escape": "\udcff\udcfe".encode("utf-8", "surrogatepass"),
    "bad_utf8": b"\xff\xfe\xfd",
    "megabyte": "a" * 1_000_000,
    "megabyte_address": "a" * 1_000_000 + "@x.example",
    "number": "9" * 400,
    "negative": "-1",
    "script": "<script>alert(1)</script>",
    "template": "{{ 7|add:7 }}{% debug %}",
    "newlines": "a\r\nBcc: everyone@x.example",
    "right_to_left": "\u202egnp.exe",
    "path": "../../../etc/passwd",
    "sql": "' OR 1=1 --",
}


def form_data(data: dict, field: str, value: str | bytes | None) -> dict:
    """`data` with `field` replaced, or left out where value is None."""
    rest = {key: item for key, item in data.items() if key != field}
    return rest if value is None else rest | {field: value}


def is_refused(response, value: str | bytes | None) -> bool:
    """Whether a form of somebody who is not signed in was refused: by its field or, where the
    value is longer than any such form, before anything read it."""
    if value is not None and len(value) > 2**16:
        return response.status_code == 413
    return response.status_code == 200 and bool(response.context["form"].errors)
