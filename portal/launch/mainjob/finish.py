"""Merge the tables of all pieces into one, /output/stats/all.csv, and print its sums."""

import csv
import os
from pathlib import Path

data, output = Path(os.environ["E31_DATA"]), Path(os.environ["E31_OUTPUT"])
tables = sorted(data.rglob("tokens.csv"))
rows: list[dict[str, str]] = []
for path in tables:
    with open(path, newline="") as file:
        rows += csv.DictReader(file)
rows.sort(key=lambda row: row["module"])
(output / "stats").mkdir(parents=True, exist_ok=True)
with open(output / "stats" / "all.csv", "w", newline="") as file:
    table = csv.DictWriter(file, fieldnames=list(rows[0]))
    table.writeheader()
    table.writerows(rows)
tokens = sum(int(row["tokens"]) for row in rows)
print(f"{len(tables)} tables, {len(rows)} modules, {tokens} tokens")
