"""What a browser would send from a page: the values of its inputs, less the buttons."""

from html.parser import HTMLParser
from typing import Any


class _Inputs(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        at = dict(attrs)
        kind = at.get("type", "text")
        if tag != "input" or not at.get("name") or kind in ("submit", "button"):
            return
        if kind in ("checkbox", "radio") and "checked" not in at:
            return
        self.found[str(at["name"])] = at.get("value") or ("on" if kind == "checkbox" else "")


def inputs_of(response: Any) -> dict[str, str]:
    parser = _Inputs()
    parser.feed(response.content.decode())
    return parser.found
