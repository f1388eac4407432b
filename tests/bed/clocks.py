"""Wall clocks of single programs, moved while they run, by libfaketime. Their monotonic clocks go on as they were."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketimeMT.so.1")
SOURCE = Path(__file__).with_name("monotonic.c")
READ_S = 1  # how late a program notices that its clock was moved


def missing() -> str | None:
    """Why no clock can be moved here."""
    if not LIBRARY.exists():
        return "libfaketime (Debian's faketime) is not installed"
    return None if shutil.which("gcc") else "gcc is not installed"


@dataclass(frozen=True)
class WallClock:
    """What the programs take for the time that were started with `environment`."""

    file: Path
    library: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": f"{self.library}:{LIBRARY}",
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": str(READ_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def move(self, ahead_s: float) -> None:
        """It is that far ahead of the machine's from now on; negative: behind."""
        beside = self.file.with_suffix(".new")
        beside.write_text(f"{ahead_s:+.0f}\n")
        beside.replace(self.file)


def made(folder: Path) -> WallClock:
    """A clock that is right so far."""
    library = folder / "monotonic.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    clock = WallClock(folder / "wall-clock", library)
    clock.move(0)
    return clock
