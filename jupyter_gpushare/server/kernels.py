"""This server's kernels: what each asked for, the capability it speaks by, its gate, and its signs of life."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import psutil

from ..broker.port import BrokerPort
from ..errors import GPUShareError, NotFound, Unavailable
from ..model import Binding, Caller, SessionSpec
from ..tasks import end, own
from .activity import Phase
from .environment import kernel_environment
from .gate import ASK, OPEN, Gate
from .notebook import renamed

if TYPE_CHECKING:
    from .elsewhere import Elsewhere
    from .members import Process
    from .pools import Pools

AWAY = "The GPU service does not answer; this kernel started without a GPU and gets its place when it is back."


@dataclass(slots=True)
class Kernel:
    """One kernel from its start's request to the proof of its end."""

    spec: SessionSpec
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    binding: Binding | None = None
    gate: Gate | None = None
    pid: int | None = None
    started: float | None = None  # the process's start time as psutil gives it
    elsewhere: bool = False  # that process is on another machine
    bursting: bool = False
    members: dict[str, Process] = field(default_factory=dict)  # of a pool, by server
    order: asyncio.Lock = field(default_factory=asyncio.Lock)  # its bursts are told in the order they happened

    @property
    def alive(self) -> bool:
        """Its process runs: this pid with this start time, not a successor and not a zombie.

        Of one on another machine that is known until its end is told.
        """
        if self.spec.parent is not None:  # a pool is held by its server, whether or not anything runs on it
            return True
        if self.pid is None or self.elsewhere:
            return self.pid is not None
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.started and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What this server's configuration says about its kernels."""

    user: str
    origin: str  # this server, new at every start of it
    folder: Path  # for gates; this user's alone
    singleuser: str | None = None  # this server's name at its hub, "" for the default one; None: no hub
    server: str | None = None  # the machine kernels run on; None: simulated devices, any of them
    mask_format: Literal["uuid", "index"] = "uuid"
    hide: bool = True  # a kernel without devices gets an empty mask
    cafile: str | None = None  # by which kernels know this server, where it speaks https
    lease_ttl_s: float = 15.0
    start_wait_s: float = 10.0
    when_full: Literal["wait", "cpu", "fail"] = "wait"


class Kernels:
    """Opens, follows and ends this server's sessions at the broker. Runs on one event loop."""

    watches = True

    def __init__(
        self,
        port: BrokerPort,
        terms: Terms,
        log: logging.Logger,
        url: Callable[[], str | None],
        root: str,
        language: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`url`: where this server's kernels reach it, None: they cannot. `root`: the folder its paths start at.

        `language`: which ``%gpu`` speaks; None: the kernels' own locale says it.
        """
        self.port, self.root = port, root
        self.elsewhere: Elsewhere | None = None  # other machines on which kernels may run
        self.pools: Pools | None = None
        self.terms = terms
        self.log = log
        self.caller = Caller(user=terms.user, role="server", origin=terms.origin)
        self.on_decision: list[Callable[[dict[str, Any]], None]] = []
        self._url, self._language = url, language
        self._kernels: dict[str, Kernel] = {}
        self._waits: set[asyncio.Task[Binding]] = set()
        self._tasks: set[asyncio.Future[None]] = set()
        self._stopping = False
        self._again_s = terms.lease_ttl_s / 3  # between two signs of life

    # --- one session's life -----------------------------------------------------------------------------------

    async def open(self, spec: SessionSpec) -> Binding:
        """The place of a kernel that starts or restarts; without devices where the broker is away.

        Cancelling it gives up the place in line. Raises GPUShareError where the policy says the start must fail.
        """
        if self._stopping:
            raise Unavailable("This server is stopping.")
        if self.pools is not None:
            self.pools.owner_ended(spec.id)
        kernel = self._kernels.get(spec.id)
        if kernel is None:
            kernel = self._kernels[spec.id] = Kernel(spec)
        kernel.spec, kernel.pid, kernel.started = spec, None, None
        asking = asyncio.ensure_future(self._ask("PUT", f"sessions/{spec.id}", spec))
        self._waits.add(asking)
        try:
            kernel.binding = msgspec.convert(await asking, Binding)
        except Unavailable as error:
            if self._stopping:
                raise
            self.log.warning("%s (%s): %s", spec.label, spec.id, error)
            kernel.binding = Binding(session=spec.id, state="none", message=AWAY)
        except asyncio.CancelledError:
            await asyncio.shield(self.ended(spec.id, "cleanup"))
            if self._stopping:
                raise Unavailable("This server is stopping.") from None
            raise
        except GPUShareError:
            await self.ended(spec.id, "cleanup")
            raise
        finally:
            self._waits.discard(asking)
        if kernel.binding.message:
            self.log.info("%s (%s): %s", spec.label, spec.id, kernel.binding.message)
        if kernel.gate is None:
            kernel.gate = self._gate(spec.id)
        return kernel.binding

    def environment(self, session: str, inherited: Mapping[str, str], *, elsewhere: bool = False) -> dict[str, str]:
        """What goes over the environment of a kernel that was opened; `elsewhere`: on another machine."""
        kernel = self._kernels[session]
        url, gate = self._url(), None if kernel.gate is None else str(kernel.gate.path)
        if elsewhere and self.elsewhere is not None:
            url, gate = self.elsewhere.url, None if gate is None else self.elsewhere.gate
        return kernel_environment(
            inherited,
            kernel.binding or Binding(session=session, state="none"),
            mask_format=self.terms.mask_format,
            hide=self.terms.hide,
            url=url,
            token=None if url is None else kernel.token,
            cafile=self.terms.cafile,
            gate=None if url is None else gate,
            language=self._language(),
        )

    def path_of(self, session: str) -> str | None:
        """Where the notebook of a kernel that was opened is now."""
        kernel = self._kernels.get(session)
        return None if kernel is None else kernel.spec.path

    def renamed(self, source: str, target: str) -> None:
        """A file or folder has another name now, and so have the notebooks there."""
        found = [(kernel, renamed(kernel.spec.path or "", source, target)) for kernel in self._kernels.values()]
        for kernel, path in found:
            if path is not None:
                kernel.spec = msgspec.structs.replace(kernel.spec, label=os.path.basename(path), path=path)
        if any(path is not None for _, path in found):
            self._own(self._say_alive())

    def show_gate(self, session: str, show: Callable[[bytes], None]) -> None:
        """What its gate says is told to a kernel on another machine by this."""
        gate = self._kernels[session].gate
        if gate is not None:
            gate.also(show)

    def known_by(self, session: str, token: str) -> None:
        """The capability that a kernel has had from an earlier server."""
        self._kernels[session].token = token

    async def started(self, session: str, pid: int, created: float | None = None) -> None:
        """Its process runs: whose processes are its tree is known from here on.

        `created`: when it started, of a process on another machine.
        """
        kernel = self._kernels.get(session)
        if kernel is None:
            return
        try:
            kernel.started = psutil.Process(pid).create_time() if created is None else created
            kernel.pid, kernel.elsewhere = pid, created is not None
        except psutil.NoSuchProcess:  # it exited already; the restarter sees to it
            return
        await self._tell(session, "started", {"pid": pid, "started": kernel.started})

    async def burst(self, session: str, phase: Phase) -> None:
        kernel = self._kernels.get(session)
        if kernel is None:
            return
        kernel.bursting = phase == "start"
        async with kernel.order:
            await self._tell(session, "burst", {"phase": phase})
        for pool in [name for name, one in self._kernels.items() if one.spec.parent == session and one.members]:
            await self.burst(pool, phase)  # its notebook computes with it

    def burst_seen(self, session: str, phase: Phase) -> None:
        """The same from a callback."""
        self._own(self.burst(session, phase))

    async def ended(self, session: str, why: Literal["cleanup", "dead"]) -> None:
        """The proof that its lease ends. A broker that is away learns it from what the signs of life no longer name."""
        kernel = self._kernels.pop(session, None)
        if kernel is None:
            return
        if self.pools is not None:
            self.pools.owner_ended(session)
        if kernel.gate is not None:
            kernel.gate.close()
        await self._tell(session, "ended", {"why": why})

    def ended_seen(self, session: str, why: Literal["cleanup", "dead"]) -> None:
        self._own(self.ended(session, why))

    # --- pools ------------------------------------------------------------------------------------------------

    def kernel_of(self, session: str) -> Kernel | None:
        return self._kernels.get(session)

    async def member(self, session: str, server: str, process: Process) -> None:
        """A pool's processes run on that server: whose they are is known from here on."""
        kernel = self._kernels.get(session)
        if kernel is not None:
            kernel.members[server] = process
            await self._tell(session, "started", _member(server, process))

    # --- what the doors ask -----------------------------------------------------------------------------------

    def session_of(self, token: str) -> str | None:
        """The session a capability speaks for, None for one that never was or whose session ended."""
        found = None
        for session, kernel in self._kernels.items():  # all of them: the time it takes tells nothing
            if hmac.compare_digest(kernel.token.encode(), token.encode()):
                found = session
        return found

    # --- its own tasks ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._own(self._live())
        self._own(self._follow())

    def end_waits(self) -> None:
        """Ends every start that waits, at once: the server was asked to stop."""
        self._stopping = True
        for wait in tuple(self._waits):
            wait.cancel()

    async def stop(self) -> None:
        self.end_waits()
        if self.pools is not None:
            await self.pools.stop()
        await end(*self._tasks)
        if self.elsewhere is not None:
            await self.elsewhere.stop()
        for kernel in self._kernels.values():
            if kernel.gate is not None:
                kernel.gate.close()
        self._kernels.clear()

    def _own(self, work: Any) -> None:
        own(self._tasks, work)

    async def alive(self) -> None:
        """Says again what runs here, in full: a broker that took over may know none of it."""
        sessions = [
            {
                "spec": kernel.spec,
                "pid": kernel.pid,
                "started": kernel.started,
                "bursting": kernel.bursting,
                "server": kernel.binding.server if kernel.binding else None,
                "devices": kernel.binding.devices if kernel.binding else (),
                "mps_pipe": kernel.binding.mps_pipe if kernel.binding else None,
                "ceiling": kernel.binding.ceiling if kernel.binding else None,
                "members": [_member(*one) for one in kernel.members.items() if one[1].poll() is None],
            }
            for kernel in self._kernels.values()
            if kernel.alive
        ]
        answer = await self._ask("POST", f"servers/{self.terms.origin}/alive", {"sessions": sessions})
        self._again_s = max(answer["again_s"], self.terms.lease_ttl_s / 3) if answer else self.terms.lease_ttl_s / 3

    async def _say_alive(self) -> None:
        try:
            await self.alive()
        except GPUShareError as error:
            self.log.debug("No sign of life reached the broker: %s", error)

    async def _live(self) -> None:
        while True:
            await self._say_alive()
            await asyncio.sleep(self._again_s)

    async def _follow(self) -> None:
        """Keeps the gates of this server's kernels as the broker decides, and passes its decisions on."""
        pause, away = 0.1, False
        while True:
            try:
                async for event in self.port.stream(self.caller):
                    if away:  # it may be another broker, which knows none of what runs here
                        await self._say_alive()
                    pause, away = 0.1, False
                    self._see(event.event, event.data)
            except GPUShareError as error:
                self.log.debug("The broker's stream ended: %s", error)
            away = True
            # Nobody is there who could admit a cell: none of them waits (rule 12).
            for kernel in self._kernels.values():
                if kernel.gate is not None:
                    kernel.gate.set(OPEN)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _see(self, event: str, data: Any) -> None:
        if event in ("status", "patch"):
            for session, seen in (data.get("sessions") or {}).items():
                kernel = self._kernels.get(session)
                if kernel is not None and kernel.gate is not None and seen is not None and "gate" in seen:
                    kernel.gate.set(OPEN if seen["gate"] == "open" else ASK)
        elif event == "decision":
            kernel = self._kernels.get(data.get("session", ""))
            if kernel is not None and kernel.gate is not None and data.get("act") == "trim":
                kernel.gate.trim()
            for hear in self.on_decision:
                try:
                    hear(data)
                except Exception:  # a listener's bug must not cost the gates their follower
                    self.log.exception("A decision about %s could not be passed on", data.get("session"))

    # --- speaking to the broker -------------------------------------------------------------------------------

    async def _ask(self, method: str, path: str, body: object) -> Any:
        return (await self.port.call(self.caller, method, path, {}, msgspec.json.encode(body))).body

    async def _tell(self, session: str, what: str, body: object) -> None:
        """Says what happened. Nothing of it is lost when nobody hears: the signs of life say it again."""
        try:
            await self._ask("POST", f"sessions/{session}/{what}", body)
        except NotFound:
            self.log.debug("The broker does not know session %s any more (%s).", session, what)
        except GPUShareError as error:
            self.log.warning("The GPU service was not told that %s %s: %s", session, what, error)

    def _gate(self, session: str) -> Gate | None:
        try:
            return Gate(self.terms.folder, session)
        except OSError as error:
            self.log.warning("No gate file (%s): cells ask the server each time.", error)
            return None


def _member(server: str, process: Process) -> dict[str, object]:
    return {"server": server, "pid": process.pid, "started": process.created}
