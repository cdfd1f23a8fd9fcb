"""Prefixed lines of several processes on one terminal."""

import os
import sys
from collections.abc import Callable
from typing import TextIO

WIDTH = 12
# ANSI foreground colors that can be read on dark and light terminals; red is kept for failures.
COLORS = {
    "run": "1",
    "main job": "1;32",
    "broker": "90",
    "set-up": "90",
    "portal": "34",
    "worker": "35",
    "transfers": "35",
    "this-machine": "36",
    "simulated": "33",
}
LONGEST_LINE = 64 * 1024


def wants_color(stream: TextIO) -> bool:
    """Whether a person looks at `stream`, and has not asked for plain text (NO_COLOR)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


class Printer:
    """Prints `name | line`, colored by name where a person looks at it."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self.stream = stream
        self.color = wants_color(stream)

    def line(self, name: str, text: str) -> None:
        prefix = f"{name:<{WIDTH}} |"
        if self.color:
            prefix = f"\x1b[{COLORS.get(name, '0')}m{prefix}\x1b[0m"
        try:
            print(prefix, text, file=self.stream, flush=True)
        except BrokenPipeError:
            # `make run | head`: the reader is gone; what runs goes on until it is told to stop.
            self.stream = open(os.devnull, "w")  # noqa: SIM115


class Lines:
    """Cuts what a process writes into lines; bytes that are no UTF-8 are shown replaced."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self.emit = emit
        self.rest = b""

    def feed(self, data: bytes) -> None:
        *whole, self.rest = (self.rest + data).split(b"\n")
        for line in whole:
            self._send(line)
        if len(self.rest) > LONGEST_LINE:
            self.close()

    def close(self) -> None:
        if self.rest:
            self._send(self.rest)
        self.rest = b""

    def _send(self, line: bytes) -> None:
        self.emit(line.decode(errors="replace").rstrip("\r"))
