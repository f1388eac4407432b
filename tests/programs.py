"""Agents and brokers as programs of their own, in a folder of the test's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.serving import until


@dataclass
class Program:
    """`jupyter gpushare VERB --config FILE`, with its own state, log and settings."""

    folder: Path
    verb: str
    settings: dict[str, Any]  # of class GPUShare
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "config.py"
        file.write_text("".join(f"c.GPUShare.{name} = {value!r}\n" for name, value in self.settings.items()))
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "GPUSHARE"))}
        state = {"STATE_DIRECTORY": str(self.folder / "state"), "GPUSHARE_LOCK_DIR": str(self.folder / "locks")}
        command = [sys.executable, "-m", "jupyter_gpushare.cli", self.verb, "--config", str(file), *self.arguments]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=plain | state | self.environment, cwd=self.folder, stdout=log, stderr=log
            )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.process.wait(30)

    def says(self, words: str, timeout_s: float = 60.0) -> None:
        """Waits until its log has them."""

        def said() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log
            return words in self.log

        until(said, timeout_s)


@contextlib.contextmanager
def running(*programs: Program) -> Iterator[None]:
    """Ends them all with the block, also those that are paused."""
    try:
        for program in programs:
            program.start()
        yield
    finally:
        for program in programs:
            if program.process is not None and program.process.poll() is None:
                program.process.send_signal(signal.SIGCONT)
                program.stop(signal.SIGKILL)
