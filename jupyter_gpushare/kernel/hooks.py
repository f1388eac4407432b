"""What jupyter-gpushare does inside a kernel: the gate before a cell, and a thread that listens for trim requests.

An open gate costs one read of two bytes (docs/decisions/0001-gate-file.md). Whatever is wrong with the service,
the cell runs.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from ..errors import GPUShareError, NotManaged
from .client import Session

OPEN = b"o"
WATCH_S = 1.0  # how often the trim counter is read
AWAY_S = 30.0  # how long a service that did not answer is not asked again
HELLO_MAX_S = 60.0

_loaded: weakref.WeakKeyDictionary[Any, Kernel | None] = weakref.WeakKeyDictionary()


def load(shell: Any) -> None:
    """Registers ``%gpu``; in a managed kernel also the gate and the thread. Loading twice changes nothing."""
    if shell in _loaded:
        return
    try:
        kernel = Kernel(shell, Session.from_environment(), GateFile(os.environ.get("GPUSHARE_GATE")))
    except NotManaged:
        _loaded[shell] = None
        shell.register_magic_function(_magic(shell, None), "line_cell", "gpu")
        return
    _loaded[shell] = kernel
    shell.register_magic_function(_magic(shell, kernel), "line_cell", "gpu")
    kernel.start()


def unload(shell: Any) -> None:
    """Takes everything back; cells start without asking from now on."""
    if shell not in _loaded:
        return
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("gpu", None)
    kernel = _loaded.pop(shell)
    if kernel is not None:
        kernel.stop()


def _magic(shell: Any, kernel: Kernel | None) -> Callable[..., None]:
    """What is behind ``%gpu`` and ``%%gpu``. Its docstring is the help; what it needs is loaded at the first use."""

    def gpu(line: str, cell: str | None = None) -> None:
        """This notebook's GPU: see it, ask for more, keep it, give it back. ``%gpu?`` lists every form."""
        from .magics import run

        run(shell, kernel, line, cell)

    gpu.getdoc = _help  # type: ignore[attr-defined] what IPython shows for ``%gpu?``
    return gpu


def _help() -> str:
    from .help import text

    return text()


class GateFile:
    """The two bytes that the server writes: open or ask, and a count of trim requests.

    Without the file (the kernel runs on another machine) the gate always asks.
    """

    def __init__(self, path: str | None) -> None:
        self._file: BinaryIO | None = None
        if path is None:
            return
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 open as long as the kernel lives
        except OSError:
            pass

    @property
    def open(self) -> bool:
        return self._read()[:1] == OPEN

    @property
    def trims(self) -> int:
        return int.from_bytes(self._read()[1:], "big")

    def _read(self) -> bytes:
        """Both bytes, fewer when the file was cut short. Read, not mapped: a map of a cut file ends the process."""
        try:
            return b"" if self._file is None else os.pread(self._file.fileno(), 2, 0)
        except (OSError, ValueError):  # unreadable, closed
            return b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Kernel:
    """The hooks of one managed kernel. IPython calls `visit` with a cell's syntax tree before any of it runs."""

    def __init__(
        self, shell: Any, session: Session, gate: GateFile, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.session = session
        self._shell, self._gate, self._clock = shell, gate, clock
        self._armed, self._depth = False, 0
        self._away_until, self._told_away = -1.0, False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="gpushare", daemon=True)
        self._events = {
            "pre_execute": self._begin,
            "pre_run_cell": self._arm,
            "post_execute": self._end,
        }

    def start(self) -> None:
        self._shell.ast_transformers.append(self)
        for event, hook in self._events.items():
            self._shell.events.register(event, hook)
        self._thread.start()

    def stop(self) -> None:
        if self in self._shell.ast_transformers:
            self._shell.ast_transformers.remove(self)
        for event, hook in self._events.items():
            self._shell.events.unregister(event, hook)
        self._ended.set()  # the thread says good-bye and ends

    # --- the gate ---

    def visit(self, tree: ast.AST) -> ast.AST:
        """The same tree. Raises InputRejected when the wait was stopped: IPython then runs nothing of the cell."""
        if self._armed:
            self._armed = False
            if self.session.changed or not self._gate.open:
                type(self.session).changed = False
                self._pass()
        return tree

    def _pass(self) -> None:
        """Returns when the cell may run: it was let in, or the service cannot say."""
        from .magics import Waiting
        from .words import __, say

        if self._clock() < self._away_until:
            return
        shown = Waiting()
        try:
            with interruptible(shown.answer) as seen:
                answer = self.session.wait(seen=seen)
            shown.done()
            adopt(answer)
            self._told_away = False
        except KeyboardInterrupt:
            shown.clear()
            raise cell_stopped() from None
        except GPUShareError as error:
            self._away_until = self._clock() + AWAY_S
            shown.clear()
            if not self._told_away:
                self._told_away = True
                shown.say(__("The cell runs without asking for a GPU: %1", say(str(error))))

    def _begin(self) -> None:
        self._depth += 1

    def _arm(self, info: Any) -> None:
        self._armed = not only_magics(info.raw_cell)

    def _end(self) -> None:
        self._armed = False
        self._depth = max(0, self._depth - 1)

    # --- the thread ---

    def _attend(self) -> None:
        """Says hello, and looks for trim requests once a second; they wait until no cell runs.

        Not at once: what speaking to the service imports would compete with the kernel that is about to be ready.
        """
        seen, greeted, pause_s, next_hello = self._gate.trims, False, WATCH_S, self._clock()
        while not self._ended.wait(WATCH_S):
            if not greeted and self._clock() >= next_hello:
                greeted = self._greet(True)
                next_hello, pause_s = self._clock() + pause_s, min(2 * pause_s, HELLO_MAX_S)
            if self._gate.trims != seen and self._depth == 0:
                from .release import release_caches

                seen = self._gate.trims
                release_caches()
        self._greet(False)
        self._gate.close()

    def _greet(self, cooperative: bool) -> bool:
        try:
            self.session.hello(cooperative)
        except GPUShareError:
            return False
        return True


def only_magics(cell: str) -> bool:
    """A cell of ``%gpu`` lines alone never waits, and ``%%gpu`` sees to its own waiting."""
    lines = [line.strip() for line in cell.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines or lines[0].split()[0] == "%%gpu":
        return True
    return all(line.strip("?").split(maxsplit=1)[:1] == ["%gpu"] for line in lines)


def cell_stopped() -> Exception:
    """What IPython is told so that it runs nothing of a cell; shown as one line."""
    from IPython.core.error import InputRejected

    from .words import __

    class CellStopped(InputRejected):
        def _render_traceback_(self) -> list[str]:
            return [str(self)]

    return CellStopped(__("Stopped while waiting for a GPU: nothing of this cell ran."))


@contextmanager
def interruptible(seen: Callable[[dict[str, Any]], None]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Stop means KeyboardInterrupt here, also where ipykernel has its own way for cells that await.

    Python drops what a signal raises inside a finaliser, such as that of a response that closes itself (3 in 1,000 at
    random moments of a call). So it is remembered, and raised again by `seen` as it is handed out, and at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    stopped = threading.Event()

    def stop(signum: int, frame: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    def unless_stopped(answer: dict[str, Any]) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        seen(answer)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield unless_stopped
    finally:
        signal.signal(signal.SIGINT, before)
        if stopped.is_set():
            raise KeyboardInterrupt


def adopt(answer: dict[str, Any]) -> None:
    """Names the devices a cell was let in on in this process's mask, while CUDA has not read it yet."""
    devices = answer.get("devices") or ()
    if not devices or cuda_started():
        return
    mask = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    by_index = bool(mask) and mask.replace(",", "").isdecimal()  # the server was told to write indices
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, answer.get("indices", ()) if by_index else devices))
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"


def cuda_started() -> bool:
    """Has this process read its mask? A framework says so, or a device node is open."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and hasattr(cuda, "is_initialized") and cuda.is_initialized():
        return True
    try:
        files = os.listdir("/proc/self/fd")
    except OSError:
        return True  # cannot be seen: the mask stays as it is
    return any(_target(file).startswith("/dev/nvidia") for file in files)


def _target(file: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        return ""  # closed since
