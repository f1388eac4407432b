"""Fixtures every room's tests share. Rooms have their own conftest for what only they need."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytest_jupyter.jupyter_server"]

os.environ["LANGUAGE"] = "en"  # %gpu speaks the language of who runs it; the tests read English

# Every run of the suite tries the same examples; new ones are looked for with HYPOTHESIS_PROFILE=nightly.
settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


class ManualClock:
    """Monotonic seconds that only move when a test says so."""

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        self.now += seconds
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


LOG_END = 3000  # characters of each log that are shown with a failure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows with a failure how the logs of the programs end that the test's fixtures run."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            for whose, log in _logs(name, value):
                report.sections.append((f"the end of the log of {whose}", log[-LOG_END:]))
    return report


def _logs(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Of a program with a `log`, or of several in a tuple, list or dict."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _logs(f"{name}[{key}]", one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _logs(f"{name}[{number}]", one)
    else:
        with contextlib.suppress(OSError):  # one that never started has none
            if isinstance(log := getattr(value, "log", None), str):
                yield name, log
