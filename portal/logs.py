"""Structured logs: one event a line, with request, user, job and lease where they are known."""

import logging.config
import re
from collections.abc import MutableMapping
from typing import Any

import structlog

# Addresses that carry a token: sign-in links, invitations, uploads, password resets.
TOKENS = re.compile(r"(/sign-in/|/invitations/|/tus/[^/\s]+/|/password/reset/key/)[^/\s?\"'>]+")


def hide_tokens(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A token in an address never reaches the log, whoever logs the address."""
    for key, value in event.items():
        if isinstance(value, str) and "/" in value:
            event[key] = TOKENS.sub(r"\1[token]", value)
    return event


def without_stack(record: logging.LogRecord) -> bool:
    """Beat logs two stacks for each message that it cannot send, while the broker is away; the
    error alone says it."""
    if record.exc_info and record.args:
        record.msg, record.args, record.exc_info = "%s", (record.exc_info[1],), None
    return True


def one_line(record: logging.LogRecord) -> bool:
    """Scanners name hosts that are not ours, as often as they like: no stack for each."""
    record.msg, record.args, record.exc_info = record.getMessage()[:200], (), None
    return True


def configure_logging(form: str, level: str) -> None:
    """Send structlog and the standard library through one formatter (console or json)."""
    shared: list = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        hide_tokens,
    ]
    renderer = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "structured": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "processors": [
                        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                        renderer,
                    ],
                    "foreign_pre_chain": shared,
                }
            },
            "filters": {
                "short": {"()": lambda: without_stack},
                "one_line": {"()": lambda: one_line},
            },
            "loggers": {
                "celery.beat": {"filters": ["short"]},
                "django.security.DisallowedHost": {"filters": ["one_line"]},
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
            "root": {"handlers": ["stderr"], "level": level},
        }
    )
