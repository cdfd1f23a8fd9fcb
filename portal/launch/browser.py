"""A browser of a few lines: cookies, forms, redirects, one connection that is kept alive.

The main job goes through the same pages and upload addresses as a person's browser does.
"""

import html
import http.client
import json
import re
import secrets
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

MOST_REDIRECTS = 5


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes
    path: str  # where it came from, after redirects

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> dict:
        return json.loads(self.body)


class Unexpected(Exception):
    """The portal answered something else than this step needs; the message is a sentence."""


class FormParser(HTMLParser):
    """The names and present values of a form's controls, as a browser would send them."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[tuple[str, str]] = []
        self._select = self._textarea = ""
        self._options: list[tuple[str, bool]] = []
        self._text: list[str] = []
        self._hidden_part = 0  # inside <template>: the rows that scripts copy

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        name = values.get("name", "")
        if tag == "template":
            self._hidden_part += 1
        if self._hidden_part or "disabled" in values:
            return
        if tag == "input":
            self._input(name, values)
        elif tag == "select":
            self._select, self._options = name, []
        elif tag == "option" and self._select:
            self._options.append((values.get("value", ""), "selected" in values))
        elif tag == "textarea":
            self._textarea, self._text = name, []

    def _input(self, name: str, values: dict[str, str]) -> None:
        kind = values.get("type", "text")
        ticked = kind not in ("checkbox", "radio") or "checked" in values
        if name and ticked and kind not in ("submit", "button", "file", "image", "reset"):
            self.fields.append((name, values.get("value", "on" if kind == "checkbox" else "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "template":
            self._hidden_part -= 1
        elif tag == "select" and self._select:
            chosen = [value for value, selected in self._options if selected]
            first = [value for value, _ in self._options[:1]]
            self.fields += [(self._select, value) for value in chosen or first]
            self._select = ""
        elif tag == "textarea" and self._textarea:
            self.fields.append((self._textarea, "".join(self._text).removeprefix("\n")))
            self._textarea = ""

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self._text.append(data)


class Form(NamedTuple):
    fields: dict[str, str]
    multipart: bool

    def encoded(self) -> tuple[bytes, str]:
        """The body and its content type, as the form asks for it."""
        if not self.multipart:
            return urlencode(self.fields).encode(), "application/x-www-form-urlencoded"
        mark = secrets.token_hex(16)
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in self.fields.items()
        ]
        body = "".join([*parts, f"--{mark}--\r\n"])
        return body.encode(), f"multipart/form-data; boundary={mark}"


def read_form(page: str, holding: str = "") -> Form:
    """The first form of `page` that has a control named `holding`."""
    for form in re.findall(r"<form\b.*?</form>", page, re.DOTALL):
        parser = FormParser()
        parser.feed(form)
        fields = dict(parser.fields)
        if not holding or holding in fields:
            return Form(fields, "multipart/form-data" in form.partition(">")[0])
    raise Unexpected(f"The page has no form with the field {holding!r}.")


def errors_on(page: str) -> str:
    """The sentences of a page's error summary or main text, for people."""
    summary = re.search(r'<[^>]*class="[^"]*error.*?</(?:div|section|ul)>', page, re.DOTALL)
    text = summary[0] if summary else re.sub(r"(?s)<head.*?</head>", "", page)
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))[:400]


class Browser:
    """Signed in once, used for every request. Not for several threads: make one each."""

    def __init__(self, url: str, timeout: float = 60) -> None:
        self.url = url
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
        self.cookies: dict[str, str] = {}

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """One request; a kept connection that the server has closed is opened again, once.

        Raises OSError or HTTPException where the portal cannot be reached.
        """
        sent = {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        sent |= {"Origin": self.url, "Referer": self.url + path} | (headers or {})
        try:
            return self._exchange(method, path, body, sent)
        except (http.client.RemoteDisconnected, ConnectionError):
            self.connection.close()
            return self._exchange(method, path, body, sent)

    def _exchange(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        self.connection.request(method, path, body=body or None, headers=headers)
        response = self.connection.getresponse()
        answer = Answer(response.status, response.headers, response.read(), path)
        for cookie in response.headers.get_all("Set-Cookie", []):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name.strip()] = value
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self._follow(self.request("GET", path, headers=headers))

    def _follow(self, answer: Answer) -> Answer:
        for _ in range(MOST_REDIRECTS):
            if answer.status not in (301, 302, 303):
                return answer
            target = urlsplit(urljoin(answer.path, answer.headers["Location"]))
            path = target.path + (f"?{target.query}" if target.query else "")
            answer = self.request("GET", path)
        raise Unexpected(f"{answer.path} leads in a circle.")

    def page(self, path: str) -> str:
        """The text of a page that must be there."""
        answer = self.get(path)
        if answer.status != 200:
            raise Unexpected(f"{path} answered {answer.status}: {errors_on(answer.text)}")
        return answer.text

    def submit(self, path: str, page: str, changes: dict[str, str], holding: str = "") -> Answer:
        """Send the form of `page` with `changes`, and follow where it leads.

        Raises Unexpected with the page's own error sentences when the form is refused.
        """
        form = read_form(page, holding)
        body, kind = Form(form.fields | changes, form.multipart).encoded()
        first = self.request("POST", path, body, {"Content-Type": kind})
        answer = self._follow(first)
        if first.status >= 400 or answer.status >= 400 or answer is first:
            raise Unexpected(f"{path} was refused ({answer.status}): {errors_on(answer.text)}")
        return answer

    def post_json(self, path: str, value: object) -> dict:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers["X-CSRFToken"] = self.cookies.get("csrftoken", "")
        answer = self.request("POST", path, json.dumps(value).encode(), headers)
        if answer.status >= 400:
            raise Unexpected(f"{path} was refused ({answer.status}): {answer.text[:300]}")
        return answer.json()
