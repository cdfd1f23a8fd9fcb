"""The database itself refuses to change a ledger row.

On SQLite only changes are refused: its tests empty tables with DELETE, where PostgreSQL truncates.
"""

from django.db import migrations

SQLITE = """
CREATE TRIGGER nodes_ledgerrow_append_only BEFORE UPDATE ON nodes_ledgerrow
BEGIN SELECT RAISE(ABORT, 'A ledger row is never changed.'); END
"""
POSTGRES = """
CREATE FUNCTION nodes_ledgerrow_append_only() RETURNS trigger AS $$
BEGIN RAISE EXCEPTION 'A ledger row is never changed.'; END
$$ LANGUAGE plpgsql;
CREATE TRIGGER nodes_ledgerrow_append_only BEFORE UPDATE OR DELETE ON nodes_ledgerrow
FOR EACH ROW EXECUTE FUNCTION nodes_ledgerrow_append_only()
"""
DROP_POSTGRES = """
DROP TRIGGER nodes_ledgerrow_append_only ON nodes_ledgerrow;
DROP FUNCTION nodes_ledgerrow_append_only()
"""


def _run(schema_editor, by_vendor: dict[str, str]) -> None:
    schema_editor.execute(by_vendor[schema_editor.connection.vendor])


def add(apps, schema_editor) -> None:
    _run(schema_editor, {"sqlite": SQLITE, "postgresql": POSTGRES})


def drop(apps, schema_editor) -> None:
    _run(
        schema_editor,
        {"sqlite": "DROP TRIGGER nodes_ledgerrow_append_only", "postgresql": DROP_POSTGRES},
    )


class Migration(migrations.Migration):
    dependencies = [("nodes", "0002_installation_watch")]
    operations = [migrations.RunPython(add, drop)]
