"""The tree of chosen files as the job will see it under /data, cut to what a page can show."""

from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_CHILDREN = 12
DEPTH = 2


@dataclass
class Branch:
    """A file or folder: its name, how many files and bytes are in it, what is left out below."""

    name: str
    files: int = 0
    bytes: int = 0
    folder: bool = False
    children: list["Branch"] = field(default_factory=list)
    hidden: int = 0


def tree(name: str, files: Iterable[tuple[str, int]], depth: int = DEPTH) -> Branch:
    """The branch called `name` over (path, size) rows, `depth` levels of it open."""
    rows = list(files)
    branch = Branch(name, files=len(rows), bytes=sum(size for _, size in rows), folder=True)
    if depth:
        groups: dict[tuple[str, bool], list[tuple[str, int]]] = {}
        for path, size in rows:
            first, slash, rest = path.partition("/")
            groups.setdefault((first, bool(slash)), []).append((rest, size))
        ordered = sorted(groups.items(), key=lambda item: (not item[0][1], item[0][0]))
        branch.hidden = max(0, len(ordered) - MOST_CHILDREN)
        branch.children = [
            tree(part, inside, depth - 1) if folder else Branch(part, files=1, bytes=inside[0][1])
            for (part, folder), inside in ordered[:MOST_CHILDREN]
        ]
    return branch


def top_folders(files: Iterable[tuple[str, int]]) -> list[Branch]:
    """The folders a person may tick: the first level that has more than one entry.

    A dataset that was one folder in the browser has a single top; what is in it is offered then.
    """
    rows, start = list(files), ""
    while rows:
        firsts = {path.partition("/")[:2] for path, _ in rows}
        if len(firsts) != 1 or not next(iter(firsts))[1]:
            break
        start += next(iter(firsts))[0] + "/"
        rows = [(path.partition("/")[2], size) for path, size in rows]
    tops: dict[str, Branch] = {}
    for path, size in rows:
        first, slash, _ = path.partition("/")
        if slash:
            top = tops.setdefault(first, Branch(f"{start}{first}/", folder=True))
            top.files, top.bytes = top.files + 1, top.bytes + size
    return [tops[name] for name in sorted(tops)]
