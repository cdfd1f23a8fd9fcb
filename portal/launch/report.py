"""What the main job prints, and what its record must say."""

import csv
import io
from datetime import datetime

from portal.base.words import in_bytes, in_hms
from portal.launch.browser import Answer

SLICES = ("launch_ms", "run_ms", "output_ms", "release_ms")


def say(sentence: str) -> None:
    print(sentence, flush=True)


def seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s"


def between(earlier: str | None, later: str | None) -> str:
    """The length between two times of a record, or "not known"."""
    if not earlier or not later:
        return "not known"
    length = datetime.fromisoformat(later) - datetime.fromisoformat(earlier)
    return f"{length.total_seconds():.1f} s"


def leases_of(record: dict) -> list[tuple[dict, dict]]:
    """(shard, lease) for every attempt that held compute."""
    return [(shard, lease) for shard in record["shards"] for lease in shard["leases"]]


def first_allocated(record: dict) -> str | None:
    return min((lease["allocated_at"] for _, lease in leases_of(record)), default=None)


def print_record(record: dict) -> None:
    """The record of a finished job, for people."""
    output = record["output"]
    say(f"record of job {record['job']}: {record['outcome']}")
    say(f"  staged     {between(record['submitted_at'], record['staged_at'])} after submit")
    say(f"  queued     {between(record['staged_at'], first_allocated(record))}, not metered")
    say("  held       piece  node           launch     run  output release    held")
    for shard, lease in leases_of(record):
        name = "finish" if shard["kind"] == "finish" else str(shard["index"])
        cells = "".join(f"{seconds(lease[key]):>8}" for key in (*SLICES, "held_ms"))
        label = lease["node"] + (" *" if lease["simulated"] else "")
        note = f"  not counted: {lease['uncounted_reason']}" if lease["uncounted_reason"] else ""
        say(f"             {name:<6} {label:<13}{cells}{note}")
    if any(lease["simulated"] for _, lease in leases_of(record)):
        say("             * simulated GPUs: made up, for demonstration")
    held = f"{in_hms(record['held_ms'])} ({seconds(record['held_ms'])})"
    say(f"  in all     held {held}, GPU time {seconds(record['gpu_ms'])}")
    for source in record["inputs"]:
        say(f"  in         {source['files']:,} files, {in_bytes(source['bytes'])}")
    verified = "verified in the store" if output["verified"] else "NOT verified"
    say(f"  out        {output['files']:,} files, {in_bytes(output['bytes'])}, {verified}")


def problems_of(record: dict, pieces: int) -> list[str]:
    """What the record says that the portal promises not to happen; empty when all is right."""
    shards, held = record["shards"], leases_of(record)
    kept = [lease for _, lease in held if not lease["uncounted_reason"]]
    checks = [
        (record["outcome"] == "succeeded", f"the outcome is {record['outcome']}"),
        (bool(record["output"]["verified"]), "the output is not verified"),
        (len(shards) == pieces + 1, f"there are {len(shards)} pieces, not {pieces + 1}"),
        (len(kept) == len(shards), "a piece has not exactly one counted attempt"),
        (len({lease["lease"] for _, lease in held}) == len(held), "an attempt is metered twice"),
        (all(lease["released_at"] for _, lease in held), "an attempt was not released"),
        (
            all(lease["held_ms"] == sum(lease[key] for key in SLICES) for _, lease in held),
            "the slices of an attempt do not add up",
        ),
        (
            (record["staged_at"] or "~") <= (first_allocated(record) or ""),
            "compute was held before the data was staged",
        ),
    ]
    return [problem for right, problem in checks if not right]


def print_table(answer: Answer) -> None:
    """The largest rows of the merged table, downloaded like any other output file."""
    if answer.status != 200:
        say(f"  the merged table could not be downloaded ({answer.status})")
        return
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    tokens = sum(int(row["tokens"]) for row in rows)
    say(f"  result     {len(rows):,} modules, {tokens:,} tokens; the longest:")
    for row in sorted(rows, key=lambda row: -int(row["tokens"]))[:3]:
        say(f"             {int(row['tokens']):>8,} tokens  {row['module']}")
