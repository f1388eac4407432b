"""Reads a backend in a thread of its own, one call at a time, and keeps the last good sample with its age.

A call may take seconds or never return: then the sample ages, nothing else waits, and no second call is made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model import Device
from .backend import Backend, BackendAbsent, NothingHere

log = logging.getLogger(__name__)

REST = 2  # pauses are so many times as long at rest: half the cost, and a load that nobody announced is seen 1 s later
LONGEST_PAUSE_S = 60.0  # between two tries of a backend that is absent
CLOSE_S = 1.5


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of the devices now.

    Attributes
    ----------
    devices : the last good sample; empty before the first
    taken : instant at which that sample was asked for, None before the first
    trouble : why there is no newer one, None when all is well
    stuck : a call has not returned for longer than it may
    nothing : the trouble is that this machine has no such devices
    """

    devices: tuple[Device, ...] = ()
    taken: float | None = None
    trouble: str | None = None
    stuck: bool = False
    nothing: bool = False


def at_rest(before: Sequence[Device], now: Sequence[Device]) -> bool:
    """Whether no device computes (one that cannot tell may), and all have the processes of the sample before."""

    def pids(devices: Sequence[Device]) -> dict[str, list[int]]:
        return {device.uuid: [process.pid for process in device.processes] for device in devices}

    return all(device.utilization == 0.0 for device in now) and pids(now) == pids(before)


def pause_s(interval_s: float, failures: int, rests: bool = False) -> float:
    """Seconds until the next call: the interval, longer at rest, doubled with every failure in a row up to a minute."""
    interval_s *= REST if rests else 1
    return min(interval_s * 2.0 ** min(failures, 30), max(interval_s, LONGEST_PAUSE_S))


class Sampler:
    """Owns the backend. `on_sample` is called in the sampler's thread after every call, good or not."""

    def __init__(
        self,
        backend: Backend,
        clock: Callable[[], float],
        *,
        interval_s: float = 1.0,
        stuck_after_s: float = 30.0,
        on_sample: Callable[[Reading], None] | None = None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._interval_s = interval_s
        self._stuck_after_s = stuck_after_s
        self._on_sample = on_sample
        self._changed = threading.Condition()
        self._reading = Reading()
        self._calling_since: float | None = None
        self._begun = 0  # calls
        self._ended = 0
        self._failures = 0
        self._rests = False
        self._wanted = False  # somebody wants a sample before the interval is over
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="gpushare-sampler", daemon=True)

    def start(self) -> None:
        """Begins to sample, unless it did."""
        if not self._thread.is_alive():
            self._thread.start()

    def first(self, timeout_s: float) -> Reading | None:
        """What the first call said; None when it has not returned within `timeout_s`. Blocks."""
        with self._changed:
            return self._reading if self._changed.wait_for(lambda: self._ended > 0, timeout_s) else None

    def reading(self) -> Reading:
        """The last sample, at once, whatever the backend does."""
        with self._changed:
            since, reading = self._calling_since, self._reading
        if since is None or self._clock() - since <= self._stuck_after_s:
            return reading
        trouble = f"{self._backend.name} has not answered for {self._clock() - since:.0f} s."
        return Reading(reading.devices, reading.taken, trouble, stuck=True)

    def wake(self) -> None:
        """Asks for a sample now."""
        with self._changed:
            self._wanted = True
            self._changed.notify_all()

    def fresh(self, timeout_s: float) -> Reading | None:
        """A sample that was asked for after this call began; None when there is none within `timeout_s`. Blocks."""
        with self._changed:
            number = self._begun + 1
            self._wanted = True
            self._changed.notify_all()
            came = self._changed.wait_for(lambda: self._ended >= number or self._closing, timeout_s)
            good = came and not self._closing and self._reading.trouble is None
            return self._reading if good else None

    def close(self) -> None:
        """Returns within two seconds. A call that hangs is left to its thread, which ends with the process."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._closing:
                self._sample()
                with self._changed:
                    pause = pause_s(self._interval_s, self._failures, self._rests)
                    self._changed.wait_for(lambda: self._wanted or self._closing, pause)
        finally:
            self._backend.close()

    def _sample(self) -> None:
        with self._changed:
            self._wanted = False
            self._begun += 1
            asked = self._calling_since = self._clock()
        try:
            reading = Reading(self._backend.sample(), asked)
        except BackendAbsent as absent:
            reading = self._troubled(str(absent), nothing=isinstance(absent, NothingHere))
        except Exception as error:  # a driver's surprise must not end the sampling for good
            log.exception("Reading %s failed", self._backend.name)
            reading = self._troubled(f"Reading {self._backend.name} failed: {error}")
        with self._changed:
            if reading.trouble != self._reading.trouble:
                log.info("%s: %s", self._backend.name, reading.trouble or "answers")
            self._rests = reading.trouble is None and at_rest(self._reading.devices, reading.devices)
            self._failures = 0 if reading.trouble is None else self._failures + 1
            self._reading = reading
            self._calling_since = None
        try:
            if self._on_sample is not None:
                self._on_sample(reading)
        except Exception:
            log.exception("A sample of %s could not be used", self._backend.name)
        with self._changed:
            self._ended = self._begun
            self._changed.notify_all()

    def _troubled(self, why: str, *, nothing: bool = False) -> Reading:
        return Reading(self._reading.devices, self._reading.taken, why, nothing=nothing)
