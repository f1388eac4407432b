"""The MPS server of one device: started, watched, given up. Blocks: for threads only.

NVIDIA's Multi-Process Service lets processes compute on a device at the same time, each on at most a named part of its
multiprocessors. A control daemon (`nvidia-cuda-mps-control`) is spoken to through its own program, over a folder of
pipes; it starts a server, whose clients are all processes that find that folder. What is so in NVIDIA's "Multi-Process
Service" guide and shapes this file:

- A fault of one client ends the work of all clients of its server, so every device has a server of its own.
- A server serves one user at a time; others hang until its clients have left. Only a daemon of root's in multi-user
  mode serves several at once. A daemon of anybody else's serves that user.
- A process that does not find the pipes runs without MPS and without limits, and nobody is told.
- What is set by commands is lost when the daemon ends, and never reaches a client that runs. Limits are therefore set
  in each client's own environment, where they can only lower what the server allows.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..units import plural

log = logging.getLogger(__name__)

PROGRAM = "nvidia-cuda-mps-control"
ASK_S = 5.0  # for one answer of the control program
CLOSE_S = 1.5  # of a server's shutdown
START_S = 15.0  # for a daemon, and then its server, to be there
LONGEST_PIPE = 80  # of a folder's path: the sockets in it have names of their own, and 107 characters are all there is
VOLTA = (7, 0)  # before it MPS had neither limits nor separate address spaces
FAILURES, WINDOW_S = 3, 3600.0  # so many within so long, and MPS is switched off for the device
FAULT = "FAULT"  # a server's state
BACKOFF_S = (10.0, 300.0)  # before the first next try, and at most


class Silent(Exception):
    """The control program gave no usable answer. The message says why."""


class NoAnswer(Silent):
    """Not even that there is no daemon: its program did not end in time, or cannot be run."""


class Fault(Silent):
    """The server met a fault: all its clients are hit, and it takes no others until they have left."""


class Control:
    """One device's control daemon. Its folders belong to it alone."""

    def __init__(self, uuid: str, folder: Path, *, multiuser: bool = False, program: str = PROGRAM) -> None:
        """`folder` holds every device's pipes and logs. `multiuser` needs root."""
        own = folder / f"gpushare-{uuid.removeprefix('GPU-')[:13]}"
        self.uuid, self.pipe, self.logs = uuid, own / "pipe", own / "log"
        self.multiuser, self._program = multiuser, program

    def start(self) -> None:
        """Starts the daemon, unless one answers there already: an agent before this one left it. Raises Silent."""
        with suppress(Silent):
            self.servers()
            return
        try:
            for made in (self.pipe, self.logs):
                made.mkdir(mode=0o755 if self.multiuser else 0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Silent(f"{self.pipe.parent} cannot be made: {error.strerror}.") from None
        if self.multiuser and (closed := shut_off(self.pipe)):
            raise Silent(f"Other users may not enter {closed}, so they could not reach the MPS server.")
        self._run(["-d", *(["-multiuser-server"] if self.multiuser else [])], None)

    def servers(self) -> tuple[int, ...]:
        """Pids of the servers that run now: none before the first client came. Raises Silent."""
        return _pids(self.ask("get_server_list"))

    def begin_server(self, uid: int) -> None:
        """A server for that user, before there is a client. Raises Silent."""
        self.ask(f"start_server -uid {uid}")

    def clients(self, server: int) -> tuple[int, ...]:
        """Pids of a server's clients. Raises Silent."""
        return _pids(self.ask(f"get_client_list {server}"))

    def state(self, server: int) -> str:
        """ACTIVE, FAULT …; empty where the control program is too old to tell. Raises Silent."""
        told = self.ask(f"get_server_status {server}").strip().upper()
        return told if told.isalpha() else ""

    def end(self) -> None:
        """Ends the daemon and its server. Only for one without clients. Raises Silent."""
        self.ask("quit")

    def cut_off(self) -> None:
        """Ends a daemon without clients and takes its pipes away; nothing while it has clients or does not answer.

        What still names the pipes runs without MPS then: CUDA asks for a server only where a daemon answers, and one
        whose servers fail would have it fail, too.
        """
        try:
            if any(self.clients(server) for server in self.servers()):
                return
            self.end()
        except NoAnswer:
            return
        except Silent:
            pass  # there is no daemon
        shutil.rmtree(self.pipe, ignore_errors=True)

    def ask(self, command: str) -> str:
        """What the daemon answers to one command of the documented language. Raises Silent."""
        return self._run([], command + "\n")

    def last_words(self) -> str:
        """The last line of its logs that tells of trouble, empty where there is none."""
        for name in ("server.log", "control.log"):
            with suppress(OSError):
                with (self.logs / name).open("rb") as file:
                    file.seek(0, os.SEEK_END)
                    file.seek(max(0, file.tell() - 8192))
                    lines = file.read().decode(errors="replace").splitlines()
                words = ("error", "fail", "fatal", "exception", "fault")
                told = [line for line in lines if any(word in line.lower() for word in words)]
                if told:
                    return told[-1][-200:]
        return ""

    def _run(self, arguments: list[str], text: str | None) -> str:
        own = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.logs)}
        own |= {"CUDA_VISIBLE_DEVICES": self.uuid}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUSHARE_")}
        daemon = text is None  # it would keep our pipes open for as long as it lives
        try:
            process = subprocess.Popen(  # noqa: S603 NVIDIA's program, found where the driver put it
                [self._program, *arguments],
                stdin=subprocess.DEVNULL if daemon else subprocess.PIPE,
                stdout=subprocess.DEVNULL if daemon else subprocess.PIPE,
                stderr=subprocess.DEVNULL if daemon else subprocess.STDOUT,
                env=kept | own,
                start_new_session=True,
                text=True,
            )
        except OSError as error:
            raise NoAnswer(f"{self._program} cannot be run: {error.strerror}.") from None
        try:
            told, _ = process.communicate(text, timeout=START_S if daemon else ASK_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):  # one that sits in the driver may not even die
                process.wait(1.0)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            raise NoAnswer("The MPS control program did not answer in time.") from None
        if process.returncode:
            said = (told or "").strip().splitlines()
            raise Silent(said[-1] if said else f"The MPS control program ended with {process.returncode}.")
        return told or ""


def _pids(text: str) -> tuple[int, ...]:
    """One pid per line. Raises Silent for anything else: what is not understood is not "none"."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not all(line.isdecimal() for line in lines):
        raise Silent(f"The MPS control program said: {lines[0][:200]}")
    return tuple(int(line) for line in lines)


def shut_off(folder: Path) -> Path | None:
    """The first folder on the way that other users may not enter, None where they may enter all."""
    for part in (*reversed(folder.absolute().parents), folder.absolute()):
        if not part.stat().st_mode & stat.S_IXOTH:
            return part
    return None


def unusable(
    folder: Path | None, capability: tuple[int, int] | None, *, program: str = PROGRAM, platform: str = sys.platform
) -> str | None:
    """Why no MPS server can serve a device of that compute capability here, None when one may be tried."""
    if platform != "linux":
        return "MPS is for Linux only."
    if capability is not None and capability < VOLTA:
        return f"MPS with limits needs compute capability 7.0; this GPU has {capability[0]}.{capability[1]}."
    if shutil.which(program) is None:
        return f"{program} is not installed. It comes with the NVIDIA driver."
    if folder is None:
        return "There is no folder for the MPS server's pipes."
    if len(str(folder / f"gpushare-{'x' * 13}" / "pipe")) > LONGEST_PIPE:
        return f"{folder} is too long a path for the MPS server's pipes; set c.GPUShare.mps_folder to a shorter one."
    return None


@dataclass(slots=True)
class Served:
    """What is known of one device's MPS server. `why`: not usable now, in words; None while it is."""

    control: Control
    why: str | None = "The MPS server is being started."
    server: int | None = None
    clients: frozenset[int] = frozenset()
    read_at: float = 0.0  # when the clients were listed
    failed_at: deque[float] = field(default_factory=lambda: deque(maxlen=FAILURES))
    retry_at: float = 0.0
    ailing: bool = False  # its server met a fault, and clients from before are still there
    off: bool = False  # for good: it failed too often


class Servers:
    """The MPS servers of a machine, watched by a thread of their own. Safe to ask from any thread."""

    def __init__(
        self,
        folder: Path | None,
        *,
        program: str = PROGRAM,
        uid: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
        watch_s: float = 5.0,
    ) -> None:
        """`folder` None: there is no place for pipes, so nothing is served."""
        self.folder, self.program = folder, program
        self.uid = os.getuid() if uid is None else uid
        self._clock, self._wait, self._watch_s = clock, wait, watch_s
        self._served: dict[str, Served] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def multiuser(self) -> bool:
        """Does one server serve all users? Else only the user who runs this."""
        return self.uid == 0

    def want(self, uuids: Iterable[str]) -> None:
        """From now on these devices shall have a server. The first call begins to watch."""
        if self.folder is None or self._closed.is_set():
            return
        for uuid in uuids:
            if uuid not in self._served:
                control = Control(uuid, self.folder, multiuser=self.multiuser, program=self.program)
                self._served = {**self._served, uuid: Served(control)}
        if self._thread is None and self._served and self._watch_s:
            self._thread = threading.Thread(target=self._watch, name="gpushare-mps", daemon=True)
            self._thread.start()

    def served(self, uuid: str) -> Served | None:
        """What is known of a device's server; None where none was wanted."""
        return self._served.get(uuid)

    def close(self) -> None:
        """Ends the servers that nobody uses, as far as they answer at once. The others stay for their kernels, and for
        the agent after this one. Safe to call twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        ending = threading.Thread(target=self._end, name="gpushare-mps-end", daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    def _end(self) -> None:
        for served in self._served.values():
            with suppress(Silent):
                if not any(served.control.clients(server) for server in served.control.servers()):
                    served.control.end()

    def _watch(self) -> None:
        while not self._closed.is_set():
            self.attend()
            self._closed.wait(self._watch_s)

    def attend(self) -> None:
        """One look at every server: starts what is wanted, notes what failed. Takes seconds where something hangs."""
        for served in self._served.values():
            if self._closed.is_set():
                return
            try:
                if not served.off:
                    self._look(served)
                elif served.control.pipe.exists():
                    served.control.cut_off()
            except Silent as trouble:
                self._failed(served, trouble)

    def _look(self, served: Served) -> None:
        if served.server is None:
            if self._clock() >= served.retry_at:
                self._begin(served)
            return
        running = served.control.servers()
        if served.server not in running:
            had, served.clients = len(served.clients), frozenset()
            if not had and not served.ailing:  # it ended when its last client did, as it may
                self._begin(served)
                return
            raise Silent(f"The MPS server ended under {plural(had, 'client')}." if had else "The MPS server ended.")
        state = served.control.state(served.server)
        served.clients, served.read_at = frozenset(served.control.clients(served.server)), self._clock()
        if state == FAULT and not served.ailing:
            raise Fault(f"A fault in one of {plural(len(served.clients), 'kernel')} ended the GPU work of all of them.")
        if served.ailing and not served.clients:  # those it hit have left: a fresh server takes its place
            served.control.end()
            served.server, served.ailing = None, False

    def _begin(self, served: Served) -> None:
        """A daemon and its server, seen to be ready before any kernel relies on them. Raises Silent."""
        served.server = None
        served.control.start()
        if not served.control.servers():
            served.control.begin_server(self.uid)
        deadline = self._clock() + START_S
        while True:
            running = served.control.servers()
            state = served.control.state(running[-1]) if running else None
            if state in ("", "ACTIVE"):
                break
            if state == FAULT:
                served.server = running[-1]
                raise Fault("The MPS server met a fault before.")
            if self._clock() >= deadline:
                raise Silent("The MPS server does not start.")
            self._wait(0.2)
        served.server, served.why, served.ailing = running[-1], None, False
        served.clients, served.read_at = frozenset(served.control.clients(running[-1])), self._clock()

    def _failed(self, served: Served, trouble: Silent) -> None:
        now, words = self._clock(), served.control.last_words()
        served.failed_at.append(now)
        recent = [at for at in served.failed_at if now - at <= WINDOW_S]
        served.off = len(recent) >= FAILURES
        pause = min(BACKOFF_S[0] * 2 ** (len(recent) - 1), BACKOFF_S[1])
        served.retry_at = now + pause
        then = "It is off until the agent starts anew" if served.off else f"It is tried again in {pause:.0f} s"
        served.why = f"{trouble}{f' Its log says: {words}' if words else ''} {then}; kernels start without MPS."
        served.ailing = isinstance(trouble, Fault)
        if not served.ailing:
            served.server, served.clients = None, frozenset()
            served.control.cut_off()
        log.warning("MPS on %s: %s", served.control.uuid, served.why)
