"""A control group per lease, where this machine lets the agent make one: the kernel's own limit.

What is measured can be outrun: processes that start each other as fast as they can take every
process number of a machine between two looks. The kernel counts before it starts one. Version 2
and the older hierarchy of the `pids` controller are known; as `cgroups(7)` tells, the group of a
process is read from /proc/self/cgroup and joined by writing to `cgroup.procs`.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
OWN = Path("/proc/self/cgroup")


class Group:
    """The group of one lease; without one (`path` is None) everything here does nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @classmethod
    def make(cls, folder: Path, most_tasks: int) -> "Group":
        """A group for the lease in `folder`, with at most so many processes and threads."""
        # Two agents of one machine may know a lease by the same name, never by the same folder.
        key = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]
        for parent in _places():
            path = parent / f"e31-{folder.name}-{key}"
            try:
                path.mkdir(exist_ok=True)
                (path / "pids.max").write_text(str(most_tasks), encoding="ascii")
            except OSError:  # not ours to divide: the next place, or none
                with contextlib.suppress(OSError):
                    path.rmdir()
                continue
            return cls(path)
        return cls(None)

    def join(self) -> None:
        """This process, and what it starts, is in the group from now on.

        For a child that is about to become the work. Where the kernel refuses, the work runs
        without the group: what is measured still limits it.
        """
        if self.path is not None:
            with contextlib.suppress(OSError):
                (self.path / "cgroup.procs").write_text("0", encoding="ascii")

    def pids(self) -> list[int]:
        """The processes in the group, as numbers of this process's namespace."""
        return [int(word) for word in _words(self.path / "cgroup.procs")] if self.path else []

    def remove(self) -> bool:
        """Remove the group; False while a process is left in it."""
        if self.path is None:
            return True
        try:
            self.path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def _places() -> Iterator[Path]:
    """The folders in which a group can be tried."""
    own = _own_paths()
    for mount, controllers in _hierarchies():
        key = "" if not controllers else "pids"
        if key not in own or (controllers and "pids" not in controllers):
            continue
        here = mount / own[key].lstrip("/")
        if controllers:
            yield here
            continue
        # A group that holds processes cannot divide itself, except the first one: beside it,
        # then at the top.
        for parent in dict.fromkeys((here.parent if here != mount else here, mount)):
            if "pids" in _words(parent / "cgroup.subtree_control"):
                yield parent


def _hierarchies() -> Iterator[tuple[Path, list[str]]]:
    """(mount point, controllers; none for version 2) of each hierarchy that is mounted whole."""
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        root, mount = fields.split()[3:5]
        kind, _, options = rest.split(" ", 2)
        if root == "/" and kind == "cgroup2":
            yield Path(mount), []
        elif root == "/" and kind == "cgroup":
            yield Path(mount), options.split()[-1].split(",")


def _own_paths() -> dict[str, str]:
    """The group of this process by controller; version 2 under the empty name."""
    found = {}
    for line in OWN.read_text(encoding="utf-8", errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            found[name] = path
    return found


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []
