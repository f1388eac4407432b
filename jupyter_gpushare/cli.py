"""`jupyter gpushare VERB`: parse, call, print, exit code: 0 fine, 1 the thing asked about is not, 2 bad usage."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ._version import __version__
from .errors import BadDemand, GPUShareError


class Parser(argparse.ArgumentParser):
    """Bad usage is one line and exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help\n")


def _parser() -> Parser:
    parser = Parser(prog="jupyter gpushare", description="Fair, elastic GPU shares for Jupyter notebooks.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)

    demo = verbs.add_parser("demo", help="JupyterLab on simulated GPUs with a guided notebook")
    demo.add_argument("--no-browser", action="store_true", help="do not open a browser")
    demo.add_argument("--port", type=_port, default=0, help="port of JupyterLab or of the hub (default: a free one)")
    demo.add_argument("--check", action="store_true", help="run everything headless to the end, print what happened")
    demo.add_argument("--hub", action="store_true", help="a JupyterHub of three GPU servers instead")
    demo.set_defaults(run=_demo)

    status = verbs.add_parser("status", help="servers, devices, sessions, queue")
    status.add_argument("--json", action="store_true", help="the same as JSON")
    status.add_argument("--url", default="", help="a Jupyter server (with ?token=…) or unix:///path of a broker")
    status.set_defaults(run=_status)

    doctor = verbs.add_parser("doctor", help="what works here and what does not, why, and what to do")
    doctor.add_argument("--json", action="store_true", help="the same as JSON")
    doctor.set_defaults(run=_doctor)

    broker = verbs.add_parser("broker", help="lend this machine's GPUs, or those of all agents, to all users")
    broker.add_argument("--config", default="", metavar="FILE", help="a file with c.GPUShare and c.Policy")
    broker.add_argument(
        "--socket", default="", metavar="PATH", help="where it listens; as a hub's service that is the hub's matter"
    )
    broker.set_defaults(run=_broker)

    agent = verbs.add_parser("agent", help="tell a broker elsewhere of this machine's GPUs, and do what it decides")
    agent.add_argument("--config", default="", metavar="FILE", help="a file with c.GPUShare")
    agent.set_defaults(run=_agent)

    simulate = verbs.add_parser("simulate", help="workloads under scheduling policies, on paper")
    simulate.add_argument(
        "act",
        nargs="?",
        choices=["compare", "objectives"],
        help="compare: several policies side by side; objectives: what weights of completion and fairness trade",
    )
    simulate.add_argument("--list", action="store_true", help="name the workloads, policies and clusters")
    simulate.add_argument("--workload", default="", help="a name from --list, or FORMAT:FILE")
    simulate.add_argument("--cluster", help="other devices than the workload's own, see --list")
    simulate.add_argument("--throughputs", type=Path, metavar="FILE.json", help="speeds for jobs:FILE.trace")
    simulate.add_argument("--sessions", type=_count, metavar="N", help="how many kernels the workload notebooks has")
    simulate.add_argument("--data", type=Path, default=Path("../shared/traces"), help="folder of the trace files")
    seeds = simulate.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=_seeds, dest="seeds", metavar="N", help="what chance is drawn from (default 42)")
    seeds.add_argument("--seeds", type=_seeds, metavar="A-B", help="several, as 42-51 or 1,2,5")
    simulate.set_defaults(run=_simulate)

    replay = verbs.add_parser("replay", help="what a hub's own recorded history would have been under another policy")
    replay.add_argument(
        "--ledger", default="", metavar="URL", help="sqlite:///FILE or postgresql+psycopg://… (default: yours)"
    )
    replay.add_argument("--cluster", help="other devices than the ledger's, as 2x4xA100")
    replay.add_argument(
        "--save", type=Path, metavar="FILE.csv", help="write the history as bursts, for sessions:FILE.csv"
    )
    replay.set_defaults(run=_replay)

    for verb in (simulate, replay):
        verb.add_argument(
            "--policy", type=_names, default=(), metavar="P[,P]", help="see simulate --list (default gpushare)"
        )
        verb.add_argument("--json", default="", metavar="FILE", help="write every run's metrics; - for standard output")
        verb.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .png or .svg")
    return parser


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _seeds(text: str) -> tuple[int, ...]:
    found = re.fullmatch(r"(\d{1,9})-(\d{1,9})", text)
    if found and int(found[1]) <= int(found[2]) < int(found[1]) + 1000:
        return tuple(range(int(found[1]), int(found[2]) + 1))
    parts = text.split(",")
    if not all(re.fullmatch(r"\d{1,9}", part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not usable; use 42, 1,2,5 or 42-51")
    return tuple(dict.fromkeys(map(int, parts)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))


def _port(text: str) -> int:
    if not text.isdigit() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _demo(arguments: argparse.Namespace) -> int:
    from .demo import run

    if arguments.check:
        return run.check_hub() if arguments.hub else run.check()
    return (run.show_hub if arguments.hub else run.show)(arguments.port, browser=not arguments.no_browser)


def _status(arguments: argparse.Namespace) -> int:
    from .status import as_text, read

    status = read(arguments.url)
    print(json.dumps(status, indent=2) if arguments.json else as_text(status))
    return 1 if status["degraded"] else 0


def _doctor(arguments: argparse.Namespace) -> int:
    import msgspec

    from .doctor import as_text, run

    findings = run()
    print(msgspec.json.format(msgspec.json.encode(findings)).decode() if arguments.json else as_text(findings))
    return 1 if any(finding.state == "broken" for finding in findings) else 0


def _broker(arguments: argparse.Namespace) -> int:
    from .server.broker_program import main

    if "JUPYTERHUB_SERVICE_PREFIX" in os.environ and not arguments.socket:
        from .hub.run import main as of_a_hub

        return of_a_hub(["--config", arguments.config])
    return main(arguments.config, arguments.socket)


def _agent(arguments: argparse.Namespace) -> int:
    from .server.agent_program import main

    return main(arguments.config)


def _simulate(arguments: argparse.Namespace) -> int:
    from .simulator.command import simulate

    return _reported(simulate(arguments, _say))


def _replay(arguments: argparse.Namespace) -> int:
    from .simulator.command import replay

    return _reported(replay(arguments, _say))


def _reported(text: str) -> int:
    if sys.stderr.isatty():
        _say("")
    print(text)
    return 0


def _say(text: str) -> None:
    """Progress, each on the same line of a terminal, on a line of its own in a log."""
    before, after = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    print(before + text, end=after, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
    except BadDemand as error:
        print(f"jupyter gpushare {arguments.verb}: {error}", file=sys.stderr)
        return 2
    except GPUShareError as error:
        print(f"jupyter gpushare {arguments.verb}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print(f"jupyter gpushare {arguments.verb}: stopped.", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
