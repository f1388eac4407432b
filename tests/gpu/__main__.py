"""``python -m tests.gpu``: runs the steps one after the other, each a process of its own with a bound."""

from __future__ import annotations

import argparse
import json
import os
import platform
import pwd
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jupyter_gpushare.model import Device
from jupyter_gpushare.node.backend import BackendAbsent
from jupyter_gpushare.node.nvml import NvmlBackend

from .bench import ROOT, Options
from .report import TITLES, write
from .steps import STEPS, Step


def main(arguments: list[str] | None = None) -> int:
    """0: every step was measured or skipped with its reason. 1: one failed or ran out of time. 2: nothing to do."""
    asked = _asked(arguments)
    device = _device(asked.device)
    if isinstance(device, str):
        print(f"No GPU check here: {device}")
        return 2
    options = Options(device.uuid, asked.unit, asked.seconds)
    began, steps = time.monotonic(), {}
    for name in asked.only or STEPS:
        steps[name] = _done(name, options, asked.budget - (time.monotonic() - began))
        why = steps[name].get("reason")
        print(
            f"{TITLES[name]}: {steps[name]['state']} ({steps[name]['took_s']:.1f} s){': ' + why if why else ''}",
            flush=True,
        )
    facts = steps.get("device", {}).get("result") or {}
    report = {
        "model": device.model,
        "driver": facts.get("driver", "unknown"),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "took_s": time.monotonic() - began,
        "options": asdict(options),
        "steps": steps,
    }
    print("Written:", *write(Path(asked.out), report))
    return 1 if any(step["state"] in ("failed", "timeout") for step in steps.values()) else 0


def _asked(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for all steps")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"of {', '.join(STEPS)}")
    parser.add_argument("--out", default=str(ROOT / "docs" / "hardware"), help="folder of the two files")
    parser.add_argument("--device", default="", help="UUID; the first usable GPU by default")
    parser.add_argument("--unit", type=int, default=10**9, help="bytes that stand for a GB")
    parser.add_argument("--seconds", type=float, default=4.0, help="for one measurement of computing")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.only or () if name not in STEPS]:
        parser.error(f"--only: {unknown[0]!r} is no step; there are {', '.join(STEPS)}")
    return asked


def _device(wanted: str) -> Device | str:
    """The device to check, or why there is none."""
    backend = NvmlBackend()
    try:
        devices = backend.sample()
    except BackendAbsent as absent:
        return str(absent)
    finally:
        backend.close()
    usable = [device for device in devices if device.state == "healthy" and device.uuid.startswith(wanted)]
    if not usable:
        return f"{wanted or 'A healthy GPU'} was not found among {len(devices)} devices."
    return next((device for device in usable if device.sharing != "mig"), usable[0])


def _done(name: str, options: Options, left_s: float) -> dict[str, Any]:
    """A step's outcome; what it leaves running is ended with it."""
    step, began = STEPS[name], time.monotonic()
    if left_s < step.least_s:
        return {"state": "skipped", "reason": "The time for all steps was used up.", "took_s": 0.0}
    if step.user is not None and os.getuid() != 0:
        reason = "This runs as an ordinary user already: all other figures are of one."
        return {"state": "skipped", "reason": reason, "took_s": 0.0}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.steps", name, json.dumps(asdict(options))],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a group of its own, so that all of it can be ended
            **_as(step),
        )
    except OSError as error:
        return {"state": "skipped", "reason": f"It cannot be run as {step.user}: {error}.", "took_s": 0.0}
    outcome: dict[str, Any]
    try:
        output, trouble = process.communicate(timeout=min(step.limit_s, left_s))
        outcome = _outcome(output, trouble)
    except subprocess.TimeoutExpired:
        outcome = {"state": "timeout", "reason": f"No end within {min(step.limit_s, left_s):.0f} s."}
    _end(process)
    return outcome | {"took_s": time.monotonic() - began}


def _outcome(output: str, trouble: str) -> dict[str, Any]:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if lines:
        return json.loads(lines[-1])
    return {"state": "failed", "reason": (trouble.strip().splitlines() or ["It said nothing."])[-1]}


def _as(step: Step) -> dict[str, Any]:
    """The ordinary user a step runs as; this process is root then."""
    if step.user is None:
        return {}
    entry = pwd.getpwnam(step.user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the step's group: only processes that it started are in it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of it has ended
    try:
        process.communicate(timeout=5.0)
    except subprocess.TimeoutExpired:
        pass  # it sits in the driver, which alone can let go of it


if __name__ == "__main__":
    sys.exit(main())
