"""Token statistics of every module of this piece: one row each in /output/stats/tokens.csv."""

import csv
import os
from collections import Counter
from pathlib import Path
from tokenize import TokenError, tok_name, tokenize

KINDS = ["NAME", "OP", "NUMBER", "STRING", "COMMENT", "NEWLINE"]
data, output = Path(os.environ["E31_DATA"]), Path(os.environ["E31_OUTPUT"])
(output / "stats").mkdir(parents=True, exist_ok=True)
with open(output / "stats" / "tokens.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["module", "bytes", "tokens", *KINDS, "problem"])
    modules = sorted(data.rglob("*.py"))
    for number, path in enumerate(modules, 1):
        problem, counts = "", Counter[str]()
        try:
            with open(path, "rb") as source:
                counts.update(tok_name[token.type] for token in tokenize(source.readline))
        except (TokenError, SyntaxError, UnicodeDecodeError) as error:
            problem = type(error).__name__  # some test files are broken on purpose
        size, module = path.stat().st_size, str(path.relative_to(data))
        table.writerow([module, size, counts.total(), *(counts[kind] for kind in KINDS), problem])
        if number % 100 == 0:
            print(f"{number} of {len(modules)} modules", flush=True)
print(f"{len(modules)} modules in piece {os.environ['E31_SHARD_INDEX']}")
