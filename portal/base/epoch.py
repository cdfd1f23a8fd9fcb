"""Times as whole milliseconds inside a query, where thousands of them are only compared."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import BigIntegerField, Func

_ZERO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class EpochMs(Func):
    """Milliseconds since 1970 of a DateTimeField; null stays null."""

    output_field = BigIntegerField()
    arity = 1

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:
        template = "CAST(ROUND((julianday(%(expressions)s) - 2440587.5) * 86400000) AS INTEGER)"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:
        template = "CAST(ROUND(EXTRACT(EPOCH FROM %(expressions)s) * 1000) AS BIGINT)"
        return self.as_sql(compiler, connection, template=template, **context)


def to_ms(at: datetime) -> int:
    return (at - _ZERO) // timedelta(milliseconds=1)


def from_ms(ms: int) -> datetime:
    return _ZERO + timedelta(milliseconds=ms)
