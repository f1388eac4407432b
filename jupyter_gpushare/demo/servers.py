"""Jupyter servers on simulated GPUs, in a folder of their own that goes when they go."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).parent
POLICY = {  # quick enough to watch; the product's own defaults are slower
    "idle_after_s": 3.0,
    "warn_before_s": 5.0,
    "window_s": 2.0,
}

T = TypeVar("T")


class DemoFailed(Exception):
    """Something did not happen in time. The message says what, and where to look."""


class Refused(DemoFailed):
    """An HTTP error status, and the reason that came with it."""

    def __init__(self, asked: str, status: int, body: bytes) -> None:
        super().__init__(f"{asked} answered {status}: {body[:500].decode(errors='replace')}")
        self.status = status
        try:
            self.reason = json.loads(body).get("reason")
        except (ValueError, AttributeError):
            self.reason = None


def ask(
    method: str,
    url: str,
    token: str | None,
    body: object = None,
    headers: Mapping[str, str] = {},
    timeout_s: float = 60.0,
) -> Any:
    """The JSON a URL answers, None for an empty answer. Raises Refused for an error status, OSError without one."""
    request = urllib.request.Request(url, method=method, headers=dict(headers))  # noqa: S310 - our own, on loopback
    if token is not None:
        request.add_header("Authorization", f"token {token}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            text = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise Refused(f"{method} {url}", error.code, error.read()) from None
    return json.loads(text) if text else None


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody has now."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in taken]
    for held in taken:
        held.close()
    return ports


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float = 30.0) -> T:
    """What `probe` answers as soon as it answers something true. Raises DemoFailed naming `what`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = probe()
        if found:
            return found
        time.sleep(0.1)
    raise DemoFailed(f"This did not happen within {timeout_s:.0f} s: {what}.")


@dataclass(frozen=True)
class Server:
    """A running Jupyter server and its REST interface."""

    user: str
    url: str  # with a trailing slash
    token: str
    runtime_dir: Path
    notebooks: Path
    process: subprocess.Popen[bytes]

    @property
    def lab_url(self) -> str:
        return f"{self.url}lab/tree/guide.ipynb?token={self.token}"

    def ask(self, method: str, path: str, body: object = None, timeout_s: float = 60.0) -> Any:
        """The JSON a path answers. Raises Refused with the server's own message for an error status."""
        return ask(method, self.url + path, self.token, body, timeout_s=timeout_s)

    def gpu(self, method: str, path: str, body: object = None) -> Any:
        return self.ask(method, f"gpushare/api/v1/{path}", body)


@contextlib.contextmanager
def serving(
    user: str,
    folder: Path,
    *,
    port: int = 0,
    lab: bool = True,
    base_url: str = "/",
    settings: Mapping[str, Mapping[str, object]] = {},
    environment: Mapping[str, str] = {},
    managed: bool = True,
    ready_path: str = "gpushare/api/v1/status",
) -> Iterator[Server]:
    """A server of `user` in `folder`; servers of one folder share one broker, as those of one user on a machine do.

    `managed` False: the same server without this extension, to compare with. `ready_path` answers when it is ready.
    """
    runtime, config = folder / "runtime", folder / f"config-{user}"
    notebooks = folder / user
    for made in (runtime, config):
        made.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not notebooks.exists():
        shutil.copytree(HERE / "notebooks", notebooks)
    wanted: dict[str, dict[str, object]] = {
        "GPUShare": {
            "devices": "simulated",
            "simulated_inventory": str(HERE / "inventory.json"),
            "simulated_user": user,
            "ledger_url": f"sqlite:///{folder / 'ledger.sqlite'}",
        },
        "Policy": dict(POLICY),
    }
    quiet = config / "lab-settings" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True, exist_ok=True)
    (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    ours = config / "lab-settings" / "jupyter-gpushare"
    ours.mkdir(parents=True, exist_ok=True)
    (ours / "plugin.jupyterlab-settings").write_text('{"tour": false}')  # the guided notebook is one
    if not managed:
        wanted["ServerApp"] = {"jpserver_extensions": {"jupyter_gpushare": False}}
    for section, values in settings.items():
        wanted.setdefault(section, {}).update(values)
    (config / "jupyter_server_config.json").write_text(json.dumps(wanted, indent=2))
    variables = {
        **os.environ,
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTERLAB_WORKSPACES_DIR": str(config / "workspaces"),
        "JUPYTERLAB_SETTINGS_DIR": str(config / "lab-settings"),
        "PYTHONUNBUFFERED": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        **environment,
    }
    command = [sys.executable, "-m", "jupyterlab" if lab else "jupyter_server", "--no-browser", f"--port={port}"]
    command += ["--port-retries=0", f"--ServerApp.base_url={base_url}", f"--ServerApp.root_dir={notebooks}"]
    if os.geteuid() == 0:
        command.append("--allow-root")
    log = folder / f"{user}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603
            command, cwd=notebooks, env=variables, stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        yield _when_ready(user, process, runtime, notebooks, log, ready_path)
    finally:
        end(process)


def _when_ready(
    user: str, process: subprocess.Popen[bytes], runtime: Path, notebooks: Path, log: Path, path: str
) -> Server:
    info_file = runtime / f"jpserver-{process.pid}.json"

    def ready() -> Server | None:
        if process.poll() is not None:
            raise DemoFailed(f"The server of {user} ended while starting:\n{log.read_text()[-2000:]}")
        try:
            info = json.loads(info_file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        server = Server(user, info["url"], info["token"], runtime, notebooks, process)
        try:
            return server if server.ask("GET", path) else None
        except (urllib.error.URLError, ConnectionError, DemoFailed):
            return None

    return wait_for(f"the server of {user} answers (its log: {log})", ready, 60.0)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
