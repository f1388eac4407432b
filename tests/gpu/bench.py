"""What the steps work with: workers they start and end, the driver's checkpoint calls with their times, the device."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from jupyter_gpushare.model import Device
from jupyter_gpushare.node import headroom
from jupyter_gpushare.node.backend import BackendAbsent
from jupyter_gpushare.node.checkpoint_driver import HelperDriver, Refused, Trouble
from jupyter_gpushare.node.nvml import NvmlBackend

ROOT = Path(__file__).parents[2]
START_S, CALL_S, MOVE_S = 30.0, 10.0, 90.0


class Impossible(Exception):
    """This step cannot be done here. The message is the reason that is written down."""


@dataclass(frozen=True, slots=True)
class Options:
    """`unit`: bytes that stand for a GB; `seconds`: how long one measurement of computing takes."""

    device: str
    unit: int = 10**9
    seconds: float = 4.0


class Worker:
    """A process of worker.py. Everything asked of it has a bound; closing it ends it, whatever it does."""

    def __init__(
        self, device: str, environment: Mapping[str, str] | None = None, began: Callable[[int], None] | None = None
    ) -> None:
        own = {
            "CUDA_VISIBLE_DEVICES": device,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.worker"],
            cwd=ROOT,
            env={**os.environ, **own, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid
        hello = self.hear(START_S)
        if hello is None or "error" in hello:
            self.close()
            raise Impossible(f"A CUDA process cannot start here: {hello['error'] if hello else 'no answer in time'}.")

    def tell(self, do: str, **request: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, within_s: float) -> dict[str, Any] | None:
        """Its next answer, None where none came in time. It may have ended: then there is an error."""
        assert self._process.stdout is not None
        deadline, line = time.monotonic() + within_s, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                return {"error": "the process ended", "code": None}
            line += piece
        return json.loads(line)

    def ask(self, do: str, within_s: float = 60.0, **request: object) -> dict[str, Any]:
        """What it answers. Raises Impossible where it fails."""
        self.tell(do, **request)
        answer = self.hear(within_s)
        if answer is None or "error" in answer:
            raise Impossible(f"{do}: {answer['error'] if answer else f'no answer in {within_s:g} s'}")
        return answer

    def alive(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        self._process.kill()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            pass  # it sits in the driver; the step's own end does not wait for it
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # what was still to be written has no reader any more


@contextmanager
def workers(options: Options, count: int = 1, **environment: str) -> Iterator[list[Worker]]:
    """That many workers on the device; ended at the end, with their children."""
    started: list[Worker] = []
    try:
        started.extend(Worker(options.device, environment) for _ in range(count))
        yield started
    finally:
        for worker in started:
            children = psutil.Process(worker.pid).children(recursive=True) if worker.alive() else []
            worker.close()
            for child in children:
                child.kill()


@contextmanager
def driver() -> Iterator[HelperDriver]:
    """The product's way to the checkpoint calls: a warm helper. Raises Impossible naming what is missing."""
    helper = HelperDriver()
    try:
        found = helper.probe(START_S)
        if found.error is not None:
            raise Impossible(found.error)
        yield helper
    except Trouble as trouble:
        raise Impossible(f"The checkpoint helper: {trouble}.") from trouble
    finally:
        helper.close()


def timed(call: Callable[[], object]) -> tuple[float, int | None, str | None]:
    """Seconds it took, and the driver's code and words where it refused."""
    began = time.monotonic()
    try:
        call()
    except Refused as refused:
        return time.monotonic() - began, refused.code, str(refused)
    except Trouble as trouble:
        return time.monotonic() - began, -1, str(trouble)
    return time.monotonic() - began, None, None


def seen(uuid: str) -> Device:
    """The device as NVML tells of it now. Raises Impossible."""
    backend = NvmlBackend()
    try:
        found = next((device for device in backend.sample() if device.uuid == uuid), None)
    except BackendAbsent as absent:
        raise Impossible(str(absent)) from None
    finally:
        backend.close()
    if found is None:
        raise Impossible(f"{uuid} is not there.")
    return found


def need_room(options: Options, size: int, pid: int = 0) -> None:
    """Raises Impossible unless device and host have room for that many bytes and some more."""
    device = seen(options.device)
    free = (
        None if device.memory_total is None or device.memory_used is None else device.memory_total - device.memory_used
    )
    margin = options.unit // 2
    if free is None or free < size + margin:
        raise Impossible(f"The device has {_gb(free)} free, {_gb(size + margin)} are needed.")
    host = headroom.free((pid or os.getpid(),))
    if host is None or host < size + 2 * margin:
        raise Impossible(f"The host has {_gb(host)} of memory free, {_gb(size + 2 * margin)} are needed.")


def need_alone(options: Options) -> None:
    """Raises Impossible where others are on the device: this step could harm them."""
    device = seen(options.device)
    if device.processes or not device.processes_known:
        raise Impossible("Other processes are on the device, and this step could harm them.")


def _gb(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / 1e9:.1f} GB"
