"""Recorded bursts as a workload: a CSV with one row a burst, as `replay` writes and anybody can."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import numpy as np

from ...errors import BadDemand
from ...model import Demand, checked
from ..cluster import GIB
from ..script import Script, Workload
from .notebooks import CLUSTER

COLUMNS = ("session", "user", "submit_s", "duration_s", "gpus", "memory_gib")

Burst = tuple[float, float, float, float]  # submit_s, duration_s, gpus, memory_gib


def load(name: str, seed: int = 0) -> Workload:
    """The bursts of `sessions:FILE`, or of a file. A session lives from its first burst to the end of its last.

    Its demand is the most that any of its bursts asked for. Raises BadDemand naming the file, row and column of what
    cannot be used.
    """
    path = Path(name.removeprefix("sessions:"))
    bursts: dict[str, list[Burst]] = defaultdict(list)
    users: dict[str, str] = {}
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise BadDemand(f"workload: {path} has no column {missing[0]}; it needs {', '.join(COLUMNS)}.")
            for number, row in enumerate(reader, 2):
                users[row["session"]] = row["user"]
                bursts[row["session"]].append(
                    (
                        _number(row, "submit_s", path, number),
                        _number(row, "duration_s", path, number),
                        _number(row, "gpus", path, number),
                        _number(row, "memory_gib", path, number),
                    )
                )
    except OSError as error:
        raise BadDemand(f"workload: {path} cannot be read: {error.strerror}.") from error
    if not bursts:
        raise BadDemand(f"workload: {path} has no bursts.")
    scripts = tuple(_script(session, users[session], sorted(rows)) for session, rows in sorted(bursts.items()))
    until_s = max(script.closes_s for script in scripts) + 1.0
    return Workload(name=name, cluster=CLUSTER, until_s=until_s, scripts=scripts)


def _number(row: dict[str, str], column: str, path: Path, number: int) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise BadDemand(f"workload: {path} row {number}: {column} {row[column]!r} is not a number of at least 0.")
    return value


def _script(session: str, user: str, rows: list[Burst]) -> Script:
    submit, work, gpus, memory = (np.array([row[i] for row in rows]) for i in range(4))
    demand = checked(Demand(gpus=float(gpus.max()), memory=int(memory.max() * GIB) or None))
    return Script(
        id=session,
        user=user,
        demand=demand,
        opens_s=float(submit[0]),
        closes_s=float((submit + work).max()),
        submit_s=submit,
        work_s=np.maximum(work, 1e-3),
        memory=float(memory.max()) * GIB,
        compute=min(demand.gpus, 1.0),
        uses=demand.devices,
    )
