"""A PostgreSQL cluster of the test's own."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpushare.demo.servers import free_ports

BINARIES = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: int(path.parent.name))


def missing() -> str | None:
    """Why there can be no cluster here."""
    if BINARIES is None:
        return "PostgreSQL's server is not installed"
    if os.geteuid() != 0:
        return None  # it runs as whoever tests
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


@dataclass
class Cluster:
    folder: Path
    port: int
    host: str = "127.0.0.1"

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://tester@{self.host}:{self.port}/{database}"

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses={self.host} -c fsync=off"
        self._run("pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-o", options, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")

    def make(self) -> None:
        if os.geteuid() == 0:
            os.chown(self.folder, pwd.getpwnam("postgres").pw_uid, -1)
        self._run("initdb", "-D", self.folder / "data", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        if self.host != "127.0.0.1":
            with (self.folder / "data" / "pg_hba.conf").open("a") as file:
                file.write("host all all samenet trust\n")

    def create(self, database: str) -> str:
        """A new database's URL."""
        self._run("createdb", "-h", self.host, "-p", str(self.port), "-U", "tester", database)
        return self.url(database)

    def _run(self, program: str, *arguments: object) -> None:
        assert BINARIES is not None
        user = "postgres" if os.geteuid() == 0 else None
        command = [str(BINARIES / program), *map(str, arguments)]
        subprocess.run(command, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL, timeout=60)


@contextlib.contextmanager
def running(folder: Path, host: str = "127.0.0.1") -> Iterator[Cluster]:
    (port,) = free_ports(1)
    cluster = Cluster(folder, port, host)
    cluster.make()
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
