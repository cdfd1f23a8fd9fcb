"""Prefixed lines: whole lines only, whatever the bytes."""

import io

from portal.launch.output import LONGEST_LINE, Lines, Printer, wants_color


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def collected(*pieces: bytes) -> list[str]:
    found: list[str] = []
    lines = Lines(found.append)
    for piece in pieces:
        lines.feed(piece)
    lines.close()
    return found


def test_lines_are_put_together():
    assert collected(b"one\ntw", b"o\nthree") == ["one", "two", "three"]


def test_bytes_that_are_no_text():
    assert collected(b"\xff\xfe\n\xe2\x82", b"\xac\n") == ["��", "€"]


def test_windows_line_ends():
    assert collected(b"one\r\ntwo\r\n") == ["one", "two"]


def test_a_line_without_end_is_cut():
    found = collected(b"x" * (LONGEST_LINE + 10))
    assert sum(map(len, found)) == LONGEST_LINE + 10


def test_prefix_without_color():
    stream = io.StringIO()
    Printer(stream).line("worker", "hello")
    assert stream.getvalue() == "worker       | hello\n"


def test_prefix_with_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    Printer(stream).line("worker", "hello")
    assert stream.getvalue() == "\x1b[35mworker       |\x1b[0m hello\n"


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(Terminal())


def test_a_reader_that_has_gone_stops_nothing():
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    printer = Printer(Gone())
    printer.line("run", "one")
    printer.line("run", "two")
    assert printer.stream.name == "/dev/null"
    printer.stream.close()
