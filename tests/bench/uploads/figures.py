"""Pairs of measurements, their medians and ratios, and the file that is written."""

import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from portal.launch.process import ROOT


@dataclass
class Pairs:
    """One quantity, measured on both sides by turns."""

    what: str
    unit: str
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Ours to the peer's, by medians."""
        return median(self.ours) / median(self.peer)

    def line(self) -> str:
        return (
            f"{self.what:<34} {spread(self.ours)}  peer {spread(self.peer)} {self.unit:<8} "
            f"ratio {self.ratio:.2f}"
        )

    def as_json(self) -> dict[str, object]:
        return {"unit": self.unit, "ours": summary(self.ours), "peer": summary(self.peer)}


def spread(values: list[float]) -> str:
    return f"{median(values):8.4g} ({min(values):.4g} to {max(values):.4g})"


def summary(values: list[float]) -> dict[str, object]:
    return {
        "median": round(median(values), 4),
        "least": round(min(values), 4),
        "most": round(max(values), 4),
        "runs": [round(value, 4) for value in values],
    }


def _said(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.strip()


def context() -> dict[str, object]:
    """The machine and the versions, without which a figure says little."""
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "node": _said("node", "--version"),
        "load_before": os.getloadavg()[0],
    }


def write(values: dict[str, float], about: dict[str, object], path: Path) -> None:
    """{"commit", "values", "context"}; a commit with changes on top is marked so."""
    commit = _said("git", "rev-parse", "HEAD")
    if _said("git", "status", "--porcelain"):
        commit += "+changes"
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = {name: round(value, 4) for name, value in values.items()}
    whole = {"commit": commit, "values": rounded, "context": about}
    path.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
