"""What tests of real servers share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

OTHERS = ("jupyterlab", "notebook", "notebook_shim", "jupyter_lsp", "jupyter_server_terminals", "nbclassic")
ALONE = {"jpserver_extensions": dict.fromkeys(OTHERS, False)}  # ServerApp: no extension but ours


def on_stand_ins(folder: Path, **more: object) -> dict[str, Any]:
    """Settings of a server that takes a stand-in NVML library's devices for its own; `more` of class GPUShare."""
    ours = {
        "devices": "auto",
        "simulated_user": "",
        "sample_interval_s": 0.2,
        "lock_dir": str(folder / "locks"),
        **more,
    }
    return {"ServerApp": ALONE, "GPUShare": ours}


def until(what: Callable[[], T], timeout_s: float = 30.0) -> T:
    """What `what` answers as soon as that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s; last: {found!r}"
        time.sleep(0.1)
    return found
