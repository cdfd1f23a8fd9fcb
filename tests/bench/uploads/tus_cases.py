"""What tus-js-client measures: one large file in three ways, and many small ones."""

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from pathlib import Path

from tests.bench.uploads.figures import Pairs, spread, summary
from tests.bench.uploads.servers import Ours, Peer, Server, Side, Sink, cpu_seconds, running

GIB = 2**30
MIB = 2**20
# The page size of a part, as tus-js-client's chunkSize; None: the whole file in one PATCH.
CHUNKS = {"one_patch": None, "50m": 50 * MIB, "8m": 8 * MIB}
SMALL_FILES, SMALL_BYTES, SMALL_PARALLEL = 2000, 16 * 1024, 8
RUN_S = 600

type Say = Callable[[str], None]
type Found = tuple[dict[str, float], dict[str, object]]


def make_file(path: Path, size: int) -> Path:
    """Bytes that do not compress, the same for every run of the benchmark."""
    piece = random.Random(1).randbytes(4 * MIB)  # noqa: S311  data, not a secret
    with path.open("wb") as file:
        for start in range(0, size, len(piece)):
            file.write(piece[: size - start])
    return path


def stir(path: Path, number: int) -> None:
    """Other first bytes for each run: no side may know the file from the run before."""
    with path.open("r+b") as file:
        file.write(number.to_bytes(8, "big"))


def send(side: Server, npm: Path, files: Iterable[Path], **options: object) -> tuple[float, float]:
    """(seconds, the server's CPU seconds) for uploading these files."""
    order = {
        "endpoint": side.endpoint,
        "headers": side.headers,
        "metadata": side.new_target(),
        "files": [str(path) for path in files],
        **options,
    }
    before = cpu_seconds(side.process.pid)
    done = subprocess.run(
        ["node", "upload.mjs"],
        cwd=npm,
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    if done.returncode:
        raise SystemExit(f"tus-js-client failed against {side.name}: {done.stderr[-800:]}")
    spent = cpu_seconds(side.process.pid) - before
    side.forget_bytes()
    return json.loads(done.stdout)["seconds"], spent


def by_turns(ours: Side, peer: Side, pairs: int) -> Iterator[tuple[int, Side]]:
    """(number of the run, side), each pair the other way round than the one before."""
    number = 0
    for _, order in zip(range(pairs), cycle([(ours, peer), (peer, ours)]), strict=False):
        for side in order:
            number += 1
            yield number, side


def warm_ups(ours: Side, peer: Side) -> list[tuple[int, Side]]:
    """One run of each whose figures are not kept."""
    return [(0, ours), (0, peer)]


def large(
    places: dict[str, Path], source: Path, npm: Path, pairs: int, size: int, say: Say
) -> Found:
    """1 GiB on memory and on disk; the value of each is the worse of the two."""
    make_file(source, size)
    ratios: dict[str, dict[str, float]] = {name: {} for name in CHUNKS}
    cpu: dict[str, float] = {}
    about: dict[str, object] = {}
    for place, folder in places.items():
        ours, peer = Ours(folder / "portal"), Peer(folder / "peer", npm)
        with running(ours, peer):
            for name, chunk in CHUNKS.items():
                rate = Pairs(f"{name} on {place}", "MiB/s")
                work = Pairs(f"{name} on {place}, server CPU", "s/GiB")
                for number, side in [*warm_ups(ours, peer), *by_turns(ours, peer, pairs)]:
                    stir(source, number)
                    options = {"chunk": chunk} if chunk else {}
                    seconds, spent = send(side, npm, [source], **options)
                    if number:
                        (rate.ours if side is ours else rate.peer).append(size / MIB / seconds)
                        (work.ours if side is ours else work.peer).append(spent * GIB / size)
                say(rate.line())
                say(work.line())
                ratios[name][place], cpu[f"{name} {place}"] = rate.ratio, work.ratio
                about |= {rate.what: rate.as_json(), work.what: work.as_json()}
    about["nothing"] = limits(source, npm, pairs, size, say)
    source.unlink()
    about["tus_1g ratios"], about["tus_cpu ratios"] = ratios, cpu
    values = {f"tus_1g_{name}_ratio": min(found.values()) for name, found in ratios.items()}
    return values | {"tus_cpu_ratio": max(cpu.values())}, about


def limits(source: Path, npm: Path, runs: int, size: int, say: Say) -> dict[str, object]:
    """MiB/s of the client against a server that does nothing: no server can be faster with it."""
    found: dict[str, object] = {}
    sink = Sink()
    with running(sink):
        for name, chunk in CHUNKS.items():
            options = {"chunk": chunk} if chunk else {}
            rates = [size / MIB / send(sink, npm, [source], **options)[0] for _ in range(runs)]
            say(f"{f'{name}, a server that does nothing':<34} {spread(rates)} MiB/s")
            found[name] = summary(rates)
    return found


def small(folder: Path, npm: Path, pairs: int, count: int, say: Say) -> Found:
    """Many files of 16 KiB, eight at a time, POST and PATCH for each, on disk."""
    source = folder / "small"
    source.mkdir()
    files = [source / f"{index:05}.bin" for index in range(count)]
    for index, path in enumerate(files):
        path.write_bytes(random.Random(index).randbytes(SMALL_BYTES))  # noqa: S311
    ours, peer = Ours(folder / "portal"), Peer(folder / "peer", npm)
    rate = Pairs(f"{count} files of 16 KiB", "files/s")
    work = Pairs(f"{count} files of 16 KiB, server CPU", "ms/file")
    with running(ours, peer):
        for number, side in by_turns(ours, peer, pairs):
            for path in files:
                stir(path, number * count + int(path.stem))
            seconds, spent = send(side, npm, files, parallel=SMALL_PARALLEL)
            (rate.ours if side is ours else rate.peer).append(count / seconds)
            (work.ours if side is ours else work.peer).append(spent * 1000 / count)
    say(rate.line())
    say(work.line())
    for path in files:
        path.unlink()
    about: dict[str, object] = {pair.what: pair.as_json() for pair in (rate, work)}
    return {"small_tus_ratio": rate.ratio}, about


def room(folder: Path) -> int:
    """Bytes free where `folder` is."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize
