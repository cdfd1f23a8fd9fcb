"""`python -m nodes.agent`: the agent of one node. See docs/agent.md."""

import argparse
import logging
import os
import sys
from pathlib import Path

from nodes.agent.loop import CANNOT, Agent, Failure, Options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nodes.agent", description=__doc__)
    parser.add_argument("--portal", required=True, help="address of the portal")
    parser.add_argument("--state-dir", required=True, type=Path, help="folder of this agent's own")
    parser.add_argument("--token", default="", help="one-time token (or E31_ENROL_TOKEN)")
    parser.add_argument("--simulate-gpus", type=int, default=0, metavar="N")
    parser.add_argument("--isolation", choices=("auto", "bwrap", "process"), default="auto")
    parser.add_argument("--name", default="", help="name in the UUIDs of simulated GPUs")
    parser.add_argument("--disk-bytes", type=int, default=0, help="most disk for leases and cache")
    parser.add_argument(
        "--end-work-on-exit",
        action="store_true",
        help="SIGTERM ends running work too (default: it goes on and is adopted)",
    )
    return parser


def main() -> int:
    arguments = _parser().parse_args()
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    options = Options(
        portal=arguments.portal,
        state=arguments.state_dir,
        token=arguments.token or os.environ.pop("E31_ENROL_TOKEN", ""),
        simulate_gpus=arguments.simulate_gpus,
        isolation=arguments.isolation,
        name=arguments.name,
        disk_bytes=arguments.disk_bytes,
        end_work_on_exit=arguments.end_work_on_exit,
    )
    try:
        return Agent(options).run()
    except (Failure, ValueError, OSError) as error:
        logging.getLogger("e31.agent").error("%s", error)
        return CANNOT


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # Threads may wait for the network or a driver: everything that counts is on disk already.
    os._exit(code)
