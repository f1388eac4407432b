"""One program of the bed: started, killed, paused and started again as whatever supervises it would."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STRANGE = ("JUPYTER", "GPUSHARE")  # variables of whoever runs the tests


@dataclass
class Part:
    """`command`, with its log and state in a folder of its own."""

    folder: Path
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    starts: int = 0

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        assert not self.runs, f"{self.folder.name} runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(STRANGE)}
        own = {"HOME": str(self.folder), "STATE_DIRECTORY": str(self.folder / "state")}
        own["JUPYTER_RUNTIME_DIR"] = str(self.folder / "runtime")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=plain | own | dict(self.environment),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM, wait_s: float = 30.0) -> int | None:
        """Its exit code; None where it did not run. Killed where it does not end in time."""
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(number)
        try:
            code = self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        return code
