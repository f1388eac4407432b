"""What `jupyter gpushare status` reads and prints."""

from __future__ import annotations

import http.client
import json
import os
import socket
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from .errors import BadDemand, Unavailable
from .units import format_bytes, format_seconds

TIMEOUT_S = 10.0
API = "gpushare/api/v1/status"

Status = dict[str, Any]


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


def default_socket() -> Path:
    """Where the broker of this machine listens, if it has a shared one, else this user's."""
    from .server.socket import machine_socket

    if machine_socket().exists():
        return machine_socket()
    from jupyter_core.paths import jupyter_runtime_dir

    return Path(jupyter_runtime_dir()) / "gpushare" / "broker.sock"


def read(url: str = "") -> Status:
    """The status of a broker. Raises BadDemand for an address that cannot be one, Unavailable when nobody answers."""
    parts = urllib.parse.urlsplit(url)
    if not url or parts.scheme == "unix":
        path = Path(parts.path) if url else default_socket()
        try:
            return _over_socket(path)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"No GPU service answers at {path} ({error}). Start JupyterLab with jupyter-gpushare installed, "
                "or name a server with --url."
            ) from error
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadDemand(f"--url: {url!r} is not usable; use http(s)://host:port/?token=… or unix:///path.")
    token = dict(urllib.parse.parse_qsl(parts.query)).get("token", os.environ.get("JUPYTER_TOKEN", ""))
    address = urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/" + API, "", ""))
    request = urllib.request.Request(address, headers={"Authorization": f"token {token}"})  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        hint = "the token is missing or wrong" if error.code == 403 else "it does not offer GPU sharing"
        raise Unavailable(f"{parts.netloc} answered {error.code}: {hint}.") from error
    except (OSError, json.JSONDecodeError) as error:
        raise Unavailable(f"{parts.netloc} does not answer: {error}") from error


def _over_socket(path: Path) -> Status:
    connection = _UnixConnection(str(path))
    try:
        connection.request("GET", "/api/v1/status")
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise Unavailable(f"The broker at {path} answered {answer.status}: {body[:200].decode(errors='replace')}")
    return dict(json.loads(body))


def as_text(status: Status) -> str:
    """A table of devices, then sessions, then the queue."""
    summary = status["summary"]
    lines = [
        f"{summary['free']:g} of {summary['devices']} GPUs free, {summary['waiting']} waiting"
        + ("  (simulated)" if status["simulated"] else "")
    ]
    lines += [f"! {finding['message']}" for finding in status["degraded"]]
    devices = [
        (
            f"GPU {device['index']}",
            device["model"],
            device["state"] if device["in_pool"] else "not offered",
            _percent(device["utilization"]),
            f"{format_bytes(device['memory_used'])} of {format_bytes(device['memory_total'])}",
            "–" if device["temperature_c"] is None else f"{device['temperature_c']:.0f} °C",
            "–" if device["power_w"] is None else f"{device['power_w']:.0f} W",
            _percent(device["allocated"]),
            server["name"],
        )
        for server in status["servers"]
        for device in server["devices"]
    ]
    if devices:
        head = ("DEVICE", "MODEL", "STATE", "BUSY", "MEMORY", "TEMP", "POWER", "SHARED OUT", "SERVER")
        lines += ["", *_table([head, *devices])]
    sessions = [
        (
            session["label"],
            session["user"],
            session["state"],
            _percent(sum(device["share"] for device in session["devices"])) if session["devices"] else "",
            format_bytes(sum(device["memory_used"] or 0 for device in session["devices"]))
            if session["devices"]
            else "",
            format_seconds(session["idle_s"]) if session["idle_s"] else "",
            session["next"]["text"] if session["next"] else session["message"],
        )
        for session in status["sessions"]
    ]
    if sessions:
        head = ("NOTEBOOK", "USER", "STATE", "SHARE", "MEMORY", "IDLE", "NEXT")
        lines += ["", *_table([head, *sessions])]
    return "\n".join(lines)


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{fraction:.0%}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
