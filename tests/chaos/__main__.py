"""``python -m tests.chaos``: random kills and cuts at a whole site, and every rule checked in the end.

As root, with iproute2, nats-server, PostgreSQL, configurable-http-proxy and, for clocks that jump, faketime. Exits with
1 and the story of each violation where a rule did not hold, with 2 where it cannot run here.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.bed import clocks, site

from .run import Outcome, run

SECONDS, STARTS_PER_S, REAL_PER_S = 600.0, 5.0, 0.3


def told(outcome: Outcome) -> str:
    """The summary, for people."""

    def spread(values: list[float]) -> str:
        if not values:
            return "none"
        return f"{len(values)}, median {values[len(values) // 2]:.2f} s, worst {values[-1]:.2f} s"

    disturbed = [one for one in outcome.takeovers if one.disturbed]
    lines = {
        "seed": outcome.seed,
        "seconds": f"{outcome.seconds:g}",
        "starts": f"{outcome.starts} of stand-ins, {outcome.real_starts} of real kernels",
        "failed real ones": f"{len(outcome.real_failures)} (their server or its way to it was away)",
        "cells": ", ".join(f"{count} {how}" for how, count in outcome.cells.items()),
        "ledger": ", ".join(f"{count} {what}" for what, count in outcome.ledger.items()),
        "faults": f"{sum(outcome.faults.values())}: "
        + ", ".join(f"{what} {count}" for what, count in sorted(outcome.faults.items())),
        "takeovers": spread(outcome.takeovers_s) + f"; {len(disturbed)} more with another part away at the same time",
        "waits served": spread(outcome.served_s),
        "healed after": f"{outcome.healed_s:.1f} s; all agree after {outcome.agreed_s:.1f} s",
        "violations": len(outcome.violations),
    }
    return "\n".join([*(f"{name + ':':18} {value}" for name, value in lines.items()), *outcome.violations])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--starts", type=float, default=STARTS_PER_S, metavar="PER_S", help="of stand-in kernels")
    parser.add_argument("--real", type=float, default=REAL_PER_S, metavar="PER_S", help="starts of real kernels")
    parser.add_argument("--keep", action="store_true", help="keep the folder with every log")
    arguments = parser.parse_args()
    if (why := site.missing()) is not None:
        print(f"It cannot run here: {why}.", file=sys.stderr)
        return 2
    if (why := clocks.missing()) is not None:
        print(f"No clock is moved: {why}.", file=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # everything that was started ends with this
    folder = Path(tempfile.mkdtemp(prefix="gpushare-chaos-"))
    print(f"logs: {folder}", flush=True)
    outcome = run(folder, arguments.seed, arguments.seconds, arguments.starts, arguments.real)
    print(told(outcome))
    if not arguments.keep and not outcome.violations:
        shutil.rmtree(folder)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
