"""A real nats-server of the test's own."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jupyter_gpushare.demo.servers import free_ports

BINARY = shutil.which("nats-server")
WHERE_INSTALLED = pytest.mark.skipif(BINARY is None, reason="nats-server is not installed")


@dataclass
class NatsServer:
    folder: Path
    config: str = ""  # more lines of its configuration
    port: int = 0
    jetstream: bool = True
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "nats.log").read_text(errors="replace")

    def start(self) -> None:
        assert BINARY is not None
        if not self.port:
            (self.port,) = free_ports(1)
        file = self.folder / "nats.conf"
        own = f'listen: "127.0.0.1:{self.port}"\n'
        own += f'jetstream {{ store_dir: "{self.folder}" }}\n' if self.jetstream else ""
        file.write_text(own + self.config)
        with (self.folder / "nats.log").open("ab") as log:
            self.process = subprocess.Popen([BINARY, "-c", str(file)], stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.02)
        raise AssertionError(self.log)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(10)
            self.process = None


@contextlib.contextmanager
def serving(folder: Path, config: str = "") -> Iterator[NatsServer]:
    server = NatsServer(folder, config)
    server.start()
    try:
        yield server
    finally:
        server.stop()
