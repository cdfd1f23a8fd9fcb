"""Short public codes. They stand in URLs instead of primary keys and cannot be guessed."""

import secrets

# No vowels and no look-alikes, so that a code is never a word and can be read aloud.
ALPHABET = "23456789bcdfghjkmnpqrstvwxz"


def new_code(length: int = 10) -> str:
    """A random code; 10 characters hold about 47 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(length))
