"""`jupyter gpushare VERB`: parse, call, print, exit code: 0 fine, 1 the thing asked about is not, 2 bad usage."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

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
    demo.add_argument("--port", type=_port, default=0, help="port of JupyterLab (default: a free one)")
    demo.add_argument("--check", action="store_true", help="run everything headless to the end, print what happened")
    demo.set_defaults(run=_demo)

    status = verbs.add_parser("status", help="servers, devices, sessions, queue")
    status.add_argument("--json", action="store_true", help="the same as JSON")
    status.add_argument("--url", default="", help="a Jupyter server (with ?token=…) or unix:///path of a broker")
    status.set_defaults(run=_status)

    doctor = verbs.add_parser("doctor", help="what works here and what does not, why, and what to do")
    doctor.add_argument("--json", action="store_true", help="the same as JSON")
    doctor.set_defaults(run=_doctor)
    return parser


def _port(text: str) -> int:
    if not text.isdigit() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _demo(arguments: argparse.Namespace) -> int:
    from .demo.run import check, show

    if arguments.check:
        return check()
    return show(arguments.port, browser=not arguments.no_browser)


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
    return code


if __name__ == "__main__":
    sys.exit(main())
