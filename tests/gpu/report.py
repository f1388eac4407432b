"""What was measured, as JSON and as a table people read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TITLES = {
    "device": "The device and its driver",
    "move-1": "Parking and resuming 1 GB, warm helper",
    "move-10": "Parking and resuming 10 GB, warm helper",
    "move-40": "Parking and resuming 40 GB, warm helper",
    "cold": "Parking and resuming 1 GB, a new helper for each call",
    "non-root": "Parking and resuming 1 GB as an ordinary user",
    "managed": "A process with managed memory",
    "children": "A process with a child on the GPU",
    "full": "Restoring onto a full device",
    "interrupt": "Ctrl-C while a CUDA call waits",
    "notebook": "A notebook parked and resumed",
    "gate": "The gate: lock and unlock alone",
    "timeslice": "Two processes, time-sliced",
    "mps": "Two processes under MPS",
    "sampling": "How often NVML has something new",
}


def names(folder: Path, model: str, driver: str) -> tuple[Path, Path]:
    """``<gpu>-<driver>.json`` and ``.md``."""
    slug = re.sub(r"[^a-z0-9.]+", "-", f"{model.removeprefix('NVIDIA ')}-{driver}".lower()).strip("-")
    return folder / f"{slug}.json", folder / f"{slug}.md"


def table(report: Mapping[str, Any]) -> str:
    """The whole report in Markdown."""
    lines = [f"# {report['model']}, driver {report['driver']}", ""]
    lines += [f"{report['date']} · `python -m tests.gpu` · {report['took_s']:.0f} s", ""]
    lines += ["| step | outcome | figure | value |", "|---|---|---|---|"]
    for name, step in report["steps"].items():
        head = f"| {TITLES[name]} | {step['state']}{': ' + step['reason'] if step.get('reason') else ''} |"
        rows = list(_rows(step.get("result") or {})) or [("", "")]
        for number, (figure, value) in enumerate(rows):
            lines.append(f"{head if number == 0 else '| | |'} {figure} | {value} |")
    return "\n".join(lines) + "\n"


def _rows(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in result.items():
        if isinstance(value, Mapping):
            yield from _rows(value, f"{prefix}{key}: ")
        else:
            yield prefix + key, _shown(key, value)


def _shown(key: str, value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_shown(key, each) for each in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and value >= 10**6:
        return f"{value / 1e9:.2f} GB" if value >= 10**8 else f"{value / 1e6:.2f} MB"
    return "–" if value is None else str(value).replace("|", "/")


def write(folder: Path, report: Mapping[str, Any]) -> tuple[Path, Path]:
    """Both files, replacing those of the same device and driver."""
    folder.mkdir(parents=True, exist_ok=True)
    data, text = names(folder, report["model"], report["driver"])
    data.write_text(json.dumps(report, indent=1) + "\n")
    text.write_text(table(report))
    return data, text
