"""What every test of nodes stands on."""

import pytest

from nodes import watch


@pytest.fixture(autouse=True)
def answering(monkeypatch):
    """The portal answers agents; no test listens at PUBLIC_URL."""
    monkeypatch.setattr(watch, "portal_answers", lambda: True)
