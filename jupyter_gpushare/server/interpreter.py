"""Which kernels can load our IPython extension: an ipykernel on an interpreter that has this package."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence

EXTENSION = "--IPKernelApp.extra_extensions=jupyter_gpushare"
PROBE = "import importlib.util as u, sys; sys.exit(u.find_spec('jupyter_gpushare') is None)"
PROBE_WAIT_S = 5.0

_probed: dict[tuple[str, float], bool] = {}  # by interpreter and the time its file changed


def interpreter_of(argv: Sequence[str]) -> str | None:
    """The interpreter of a command that is plainly ``python -m ipykernel…``; None for wrappers and other kernels."""
    if len(argv) > 2 and "python" in os.path.basename(argv[0]) and argv[1:2] == ["-m"]:
        return argv[0] if argv[2] in ("ipykernel", "ipykernel_launcher") else None
    return None


def _probe(interpreter: str) -> bool:
    try:
        asked = subprocess.run(  # noqa: S603 the kernelspec's own interpreter, which is about to be started anyway
            [interpreter, "-c", PROBE], timeout=PROBE_WAIT_S, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


async def has_package(interpreter: str) -> bool:
    """Whether it can import us. Our own can; another is asked once, in a thread, and again when its file changes."""
    if interpreter == sys.executable:
        return True
    try:
        key = (interpreter, os.stat(interpreter).st_mtime)
    except OSError:
        return False
    if key not in _probed:
        _probed[key] = await asyncio.get_running_loop().run_in_executor(None, _probe, interpreter)
    return _probed[key]


async def with_extension(argv: list[str]) -> list[str]:
    """The command that also loads ``jupyter_gpushare`` in the kernel, where that can work; else the same command."""
    interpreter = interpreter_of(argv)
    if interpreter is None or EXTENSION in argv or not await has_package(interpreter):
        return argv
    return [*argv, EXTENSION]
