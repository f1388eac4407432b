"""Machines of one network, each in a network namespace of its own: cut off by taking its link down, not by a stand-in.

A bridge joins them. This machine itself is on it, too, as `Network.here`. Only networks differ: processes see each
other, as the node agent of a cluster sees those of containers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache


@cache
def missing() -> str | None:
    """Why there can be no such network here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip (Debian's iproute2) is not installed"
    name = f"gps{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}b", "type", "bridge")
        _ip("link", "del", f"{name}b")
    except subprocess.CalledProcessError as error:
        return f"no network namespace can be made here: {error.stderr.decode(errors='replace').strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None


@dataclass(frozen=True)
class Machine:
    """One namespace. `command` runs in it when it begins with `within`."""

    name: str
    namespace: str
    link: str  # this machine's end of its cable
    address: str

    @property
    def within(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.namespace)

    def cut(self) -> None:
        """Nothing reaches it any more, and nothing that it says reaches anybody; connections stay open at both ends."""
        _ip("link", "set", self.link, "down")

    def heal(self) -> None:
        _ip("link", "set", self.link, "up")


@dataclass(frozen=True)
class Network:
    here: str  # this machine's address on it
    machines: dict[str, Machine]


@contextlib.contextmanager
def running(names: Iterable[str]) -> Iterator[Network]:
    """A network of machines of these names, with addresses of 198.18.0.0/15: those are for tests (RFC 2544)."""
    number = os.getpid()
    net, bridge = f"198.{18 + number // 256 % 2}.{number % 256}", f"gps{number}"
    machines = {
        name: Machine(name, f"gps{number}-{name}", f"gps{number}-{host}", f"{net}.{host}")
        for host, name in enumerate(names, start=2)
    }
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{net}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for machine in machines.values():
            _join(machine, bridge)
        yield Network(f"{net}.1", machines)
    finally:
        for machine in machines.values():  # with its namespace goes its end of the cable, and so the other
            subprocess.run(["ip", "netns", "del", machine.namespace], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", machine.link], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def _join(machine: Machine, bridge: str) -> None:
    _ip("netns", "add", machine.namespace)
    _ip("link", "add", machine.link, "type", "veth", "peer", "name", "eth0", "netns", machine.namespace)
    _ip("link", "set", machine.link, "master", bridge, "up")
    for arguments in (
        ("link", "set", "lo", "up"),
        ("addr", "add", f"{machine.address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
    ):
        _ip("-n", machine.namespace, *arguments)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
