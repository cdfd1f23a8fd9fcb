"""Structured logs: request, user, job and lease in every line, and tokens in none."""

import io
import json
import logging

import pytest
import structlog

from portal.celery import name_task
from portal.logs import configure_logging


@pytest.fixture
def lines(settings):
    """The lines logged as JSON since the start of the test."""
    out = io.StringIO()
    configure_logging("json", "INFO")
    handler = logging.getLogger().handlers[0]
    handler.setStream(out)  # type: ignore[attr-defined]
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    structlog.contextvars.clear_contextvars()
    configure_logging("console", "WARNING")


def test_a_line_is_one_json_object_with_time_level_and_logger(lines):
    structlog.get_logger("portal.x").info("happened", count=3, name="a\nb")
    (line,) = lines()
    assert (line["event"], line["count"], line["name"]) == ("happened", 3, "a\nb")
    assert (line["level"], line["logger"]) == ("info", "portal.x")
    assert line["timestamp"].endswith("Z")


def test_lines_of_a_request_carry_its_id_and_user(lines, owner_client, owner, mate):
    response = owner_client.get("/team/members/0/role")
    found = [line for line in lines() if line["logger"] == "django.request"]
    assert found[0]["request"] == response["X-Request-Id"]
    assert found[0]["user"] == owner.pk


def test_the_next_request_has_its_own_names(lines, owner_client, client):
    owner_client.get("/team/members/0/role")
    client.get("/nothing-here")
    first, second = (line for line in lines() if line["logger"] == "django.request")
    assert first["request"] != second["request"]
    assert "user" not in second


@pytest.mark.parametrize(
    ("path", "kwargs", "key", "value"),
    [
        ("/jobs/abc/", {"code": "abc"}, "job", "abc"),
        ("/records/abc/", {"code": "abc"}, "job", "abc"),
        ("/agent/v1/leases/xyz/spec", {"lease": "xyz"}, "lease", "xyz"),
    ],
)
def test_the_job_or_lease_of_an_address_is_named(lines, rf, path, kwargs, key, value):
    from portal.base.middleware import RequestContextMiddleware

    def respond(request):
        middleware.process_view(request, respond, (), kwargs)
        structlog.get_logger("portal.x").info("looked")
        return {}

    middleware = RequestContextMiddleware(respond)
    middleware(rf.get(path))
    assert lines()[0][key] == value


def test_what_a_part_binds_shows_in_other_libraries_lines_too(lines):
    with structlog.contextvars.bound_contextvars(job="j1", lease="l1"):
        logging.getLogger("some.library").warning("slow: %s", "disk")
    (line,) = lines()
    assert (line["event"], line["job"], line["lease"]) == ("slow: disk", "j1", "l1")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("/sign-in/SECRET", "/sign-in/[token]"),
        ("/invitations/SECRET?x=1", "/invitations/[token]?x=1"),
        ("/tus/abc/SECRET", "/tus/abc/[token]"),
        ("/accounts/password/reset/key/1-SECRET/", "/accounts/password/reset/key/[token]/"),
    ],
)
def test_tokens_in_addresses_are_hidden(lines, address, shown):
    logging.getLogger("django.request").warning("Not Found: %s", address)
    structlog.get_logger("portal.x").info("seen", path=address)
    plain, structured = lines()
    assert plain["event"] == f"Not Found: {shown}"
    assert structured["path"] == shown


def test_a_refused_sign_in_link_does_not_log_its_token(lines, client, db):
    client.get("/sign-in/SECRETSECRET")
    assert lines()
    assert "SECRETSECRET" not in json.dumps(lines())


def test_an_exception_is_in_the_line(lines):
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("portal.x").exception("failed")
    (line,) = lines()
    assert "ValueError: why" in line["exception"]


def test_tasks_are_named_and_inherit_nothing(lines):
    class Task:
        name = "nodes.tasks.schedule"

    structlog.contextvars.bind_contextvars(job="of the task before")
    name_task(task=Task(), task_id="t1")
    structlog.get_logger("portal.x").info("ran")
    (line,) = lines()
    assert (line["task"], line["task_id"]) == ("nodes.tasks.schedule", "t1")
    assert "job" not in line


def test_a_message_that_beat_cannot_send_is_one_line(lines):
    try:
        raise ConnectionError("refused")
    except ConnectionError as error:
        logging.getLogger("celery.beat").error("Error: %s\n%s", error, ["stack"], exc_info=True)
    (line,) = lines()
    assert line["event"] == "refused"
    assert "exception" not in line
