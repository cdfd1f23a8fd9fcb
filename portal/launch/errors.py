"""What stops a start: one sentence for the person at the terminal."""


class CannotStart(Exception):
    """The start cannot go on; `str(error)` is the sentence, the exit code is 1."""


class Asked(Exception):
    """A signal asked for the end; not a failure."""
