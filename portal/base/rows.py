"""Rows without a query builder, for the few paths that run hundreds of times a second.

The columns and their conversions are the model's own and are worked out once, so a statement costs
what the database takes and little more. Everything else uses the ORM.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.db import connection
from django.db.models import Field, Model


def execute(sql: str, params: Sequence[Any]) -> int:
    """Run one statement; how many rows it changed. Datetimes as `when` gives them."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.rowcount


def fetch(sql: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row of a query, as the database's driver gives it."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()


def when(at: object) -> object:
    """An aware datetime as a parameter."""
    return connection.ops.adapt_datetimefield_value(at)  # type: ignore[arg-type]


def table(model: type[Model]) -> str:
    return connection.ops.quote_name(model._meta.db_table)


@lru_cache
def _plan(model: type[Model], vendor: str) -> tuple[list[Field], str, list[list[Any]]]:
    """(fields, their columns as SQL, the converters of each)"""
    fields = list(model._meta.concrete_fields)
    columns = ", ".join(connection.ops.quote_name(str(f.column)) for f in fields)
    converters = []
    for field in fields:
        column = field.get_col(model._meta.db_table)
        converters.append(
            [
                (convert, column)
                for convert in (
                    *connection.ops.get_db_converters(column),
                    *column.get_db_converters(connection),
                )
            ]
        )
    return fields, columns, converters


def find[M: Model](model: type[M], where: str, params: Sequence[Any]) -> M | None:
    """The first row for which `where` (SQL over its columns) holds, as an instance."""
    fields, columns, converters = _plan(model, connection.vendor)
    row = fetch(f"SELECT {columns} FROM {table(model)} WHERE {where} LIMIT 1", params)  # noqa: S608
    if row is None:
        return None
    values = list(row)
    for index, steps in enumerate(converters):
        for convert, column in steps:
            values[index] = convert(values[index], column, connection)
    return model.from_db(connection.alias, [f.attname for f in fields], values)


def insert(row: Model, unless: str = "") -> bool:
    """Insert an instance, which gets its key. `unless`: "ON CONFLICT DO NOTHING"; False then.

    Defaults that only the database knows are not for this.
    """
    model = type(row)
    sql, fields = _insertion(model, connection.vendor)
    values = [f.get_db_prep_save(f.pre_save(row, add=True), connection) for f in fields]
    found = fetch(f"{sql} {unless} RETURNING id", values)
    if found is None:
        return False
    row.pk, row._state.adding, row._state.db = found[0], False, connection.alias
    return True


def change(model: type[Model], changes: dict[str, Any], where: str, params: Sequence[Any]) -> int:
    """Set fields of the rows for which `where` holds; how many there were."""
    sql, fields = _update(model, connection.vendor, tuple(changes), where)
    values = [
        f.get_db_prep_save(v, connection) for f, v in zip(fields, changes.values(), strict=True)
    ]
    return execute(sql, [*values, *params])


@lru_cache
def _update(
    model: type[Model], vendor: str, names: tuple[str, ...], where: str
) -> tuple[str, list[Field]]:
    known = {f.attname: f for f in model._meta.concrete_fields}
    fields = [known[name] for name in names]
    settings = ", ".join(f"{connection.ops.quote_name(str(f.column))} = %s" for f in fields)
    return f"UPDATE {table(model)} SET {settings} WHERE {where}", fields  # noqa: S608


@lru_cache
def _insertion(model: type[Model], vendor: str) -> tuple[str, list[Field]]:
    fields = [
        f for f in model._meta.concrete_fields if not f.primary_key and not f.has_db_default()
    ]
    columns = ", ".join(connection.ops.quote_name(str(f.column)) for f in fields)
    marks = ", ".join(["%s"] * len(fields))
    return f"INSERT INTO {table(model)} ({columns}) VALUES ({marks})", fields  # noqa: S608
