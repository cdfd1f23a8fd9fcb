"""The command line of the launcher."""

import sys

from portal.launch.run import launch

USAGE = "usage: python -m portal.launch run|demo"


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in ("run", "demo"):
        print(USAGE, file=sys.stderr)
        return 2
    return launch(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
