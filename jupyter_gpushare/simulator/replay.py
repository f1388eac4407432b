"""A ledger's recorded history as a workload of sessions: what a hub's own past would have been under another policy.

The ledger keeps leases, and sums of use over stretches of 300 s, so a burst is known to the stretch, not to the second.
In a stretch in which a session used its devices for half of the time or more, it counts as computing throughout, at
that utilisation; in any other it computed for that part of the time, at full speed. Where use could not be read it
counts as idle, and how much time that is, is said. Not recorded, so assumed: models of devices (A100), GPU memory that
no demand names (8 GiB on a device of one's own, less on a share), bandwidth (0.3 of the computing).

A ledger is only read: an SQLite file is copied first, so an older one is migrated in the copy; other databases are
opened read-only.
"""

from __future__ import annotations

import csv
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec
import numpy as np

from ..broker import tables
from ..broker.database import Database, Trouble
from ..broker.journal import BUCKET_S
from ..broker.storage import default_url
from ..errors import BadDemand
from ..model import Constraints, Demand
from .cluster import GIB
from .metrics import metrics
from .run import Run
from .script import Script, Workload
from .workloads.sessions import COLUMNS

DENSE = 0.5  # of a stretch, from which a session counts as computing throughout
LEAST = 0.01  # of a stretch: less is no burst
MEMORY_GIB = 8.0  # on a device of one's own, where the demand names none: assumed, as for the generated notebooks
BANDWIDTH = 0.3  # of the computing: assumed
FORMS = "sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"
MODEL = "A100"  # assumed: ledgers do not say


class Stretch(NamedTuple):
    """What a session did in BUCKET_S seconds, on the device it used most. `busy` None: could not be read."""

    at: float
    held_s: float
    busy: float | None


@dataclass(slots=True)
class Kernel:
    """One session of the ledger."""

    user: str
    server: str
    demand: Demand
    opened_at: float
    ended_at: float | None
    devices: set[str]
    used: set[str] = field(default_factory=set)
    stretches: list[Stretch] = field(default_factory=list)


class Past(NamedTuple):
    """A ledger's history.

    `held_s`, `used_s`: device-seconds under any lease, and in use. `unread`: part of the sessions' time with a share in
    which nobody knows what they used.
    """

    url: str
    workload: Workload
    held_s: float
    used_s: float
    unread: float


class _Reader(Database):
    """All that was ever written, whichever broker wrote it."""

    def kernels(self) -> dict[str, Kernel]:
        """By session, with what each did. Raises Trouble."""
        found: dict[str, Kernel] = {}
        with self._transaction() as connection:
            for row in connection.execute(tables.leases.select().order_by(tables.leases.c.id)).mappings():
                _add_lease(found, row)
            usage = tables.usage.c
            rows = connection.execute(tables.usage.select().order_by(usage.session, usage.at))
            for (session, at), those in groupby(rows.mappings(), lambda row: (row["session"], row["at"])):
                if session in found:
                    _add_stretch(found[session], float(at), list(those))
        return found

    def totals(self) -> tuple[float, float]:
        """Device-seconds under any lease, and in use. Raises Trouble."""
        held_s = used_s = 0.0
        usage = tables.usage.c
        with self._transaction() as connection:
            rows = connection.execute(tables.usage.select().order_by(usage.device, usage.at)).mappings()
            for _, those in groupby(rows, lambda row: (row["device"], row["at"])):
                together = [(row["held_s"], row["used_s"]) for row in those]
                held_s += min(sum(held for held, _ in together), BUCKET_S)
                used_s += sum(used for _, used in together)
        return held_s, used_s


def read(url: str = "") -> Past:
    """The history behind an SQLAlchemy URL, this user's own ledger for an empty one.

    Raises BadDemand in one line where it cannot be read, was written by a newer version, or holds no session.
    """
    asked = url or default_url()[0]
    named = re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", asked)  # without its password
    with tempfile.TemporaryDirectory(prefix="gpushare-replay-") as folder:
        opened = _read_only(asked, Path(folder))
        reader = _Reader(opened)
        try:
            reader.connect()
            kernels, (held_s, used_s) = reader.kernels(), reader.totals()
        except Trouble as trouble:
            why = str(trouble).partition(" cannot be used, ")[2].partition(". Leases are kept")[0]
            raise BadDemand(f"ledger: {named} cannot be used, {why}; use {FORMS}.") from None
        finally:
            reader.close()
    if not kernels:
        raise BadDemand(f"ledger: {named} holds no session that asked for a GPU, so there is nothing to replay.")
    known = [(each.held_s, each.busy is None) for kernel in kernels.values() for each in kernel.stretches]
    unread = sum(held for held, blind in known if blind) / max(sum(held for held, _ in known), 1.0)
    return Past(named, workload_of(kernels), held_s, used_s, unread)


def workload_of(kernels: Mapping[str, Kernel]) -> Workload:
    """The kernels as sessions of a simulation that begins with the first of them."""
    began = min(kernel.opened_at for kernel in kernels.values())
    ended = max(
        max([kernel.ended_at or 0.0, *(each.at + BUCKET_S for each in kernel.stretches)]) for kernel in kernels.values()
    )
    ended = max(ended, *(kernel.opened_at for kernel in kernels.values()))
    scripts = [script(name, kernel, began, ended) for name, kernel in kernels.items()]
    return Workload(
        name="ledger",
        cluster=_cluster(kernels.values()),
        until_s=max(each.closes_s for each in scripts) + 1.0,
        scripts=tuple(sorted(scripts, key=lambda each: (each.opens_s, each.id))),
    )


def script(name: str, kernel: Kernel, began: float, ended: float) -> Script:
    """One kernel. It lives from its first lease's beginning to its last one's end, `ended` for one that is open."""
    submit_s, work_s, device_s = bursts(kernel.stretches)
    submit = np.maximum(np.array(submit_s), kernel.opened_at) - began
    work = np.array(work_s)
    closes_s = (kernel.ended_at or ended) - began
    share = min(kernel.demand.gpus, 1.0)
    compute = min(device_s / float(work.sum()), 1.0) if work.size else 1.0
    return Script(
        id=name,
        user=kernel.user,
        demand=kernel.demand,
        opens_s=kernel.opened_at - began,
        closes_s=max(closes_s, float((submit + work).max(initial=0.0))),
        submit_s=submit,
        work_s=work,
        memory=float(kernel.demand.memory or MEMORY_GIB * GIB * share),
        compute=compute,
        bandwidth=BANDWIDTH * compute,
        uses=min(max(len(kernel.used), 1), kernel.demand.devices),
    )


def bursts(stretches: Iterable[Stretch]) -> tuple[list[float], list[float], float]:
    """When each burst begins, how long it computes, and the seconds of device time in all of them."""
    submit, work, device_s = list[float](), list[float](), 0.0
    dense_until = -1.0
    for each in stretches:
        if each.busy is None or each.busy < LEAST:
            continue
        device_s += each.busy * each.held_s
        if each.busy < DENSE:
            submit.append(each.at)
            work.append(each.busy * each.held_s)
        else:
            if each.at == dense_until:
                work[-1] += each.held_s
            else:
                submit.append(each.at)
                work.append(each.held_s)
            dense_until = each.at + BUCKET_S
    return submit, work, device_s


def recorded(past: Past) -> Run:
    """What the ledger itself says, as far as it does."""
    devices = sum(int(part.split("x")[0]) * int(part.split("x")[1]) for part in past.workload.cluster.split("+"))
    known = metrics(
        gpu_hours_held=past.held_s / 3600.0,
        gpu_hours_used=past.used_s / 3600.0,
        utilization=past.used_s / (devices * past.workload.until_s),
    )
    return Run(past.workload.name, "recorded", past.workload.cluster, 0, known)


def as_text(past: Past) -> str:
    """What was found, in a line or two."""
    scripts, days = past.workload.scripts, past.workload.until_s / 86400.0
    users = len({each.user for each in scripts})
    lines = [
        f"{past.url}: {len(scripts)} sessions of {users} users in {days:.1f} days, "
        f"{sum(each.submit_s.size for each in scripts)} bursts"
    ]
    if past.unread > 0:
        lines.append(f"What was used could not be read in {past.unread:.1%} of the time; there it counts as idle.")
    return "\n".join(lines)


def save(workload: Workload, path: Path) -> None:
    """The bursts as `sessions:FILE.csv` takes them. Raises BadDemand where the file cannot be written."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for each in workload.scripts:
                facts = f"{each.demand.gpus:g}", f"{each.memory / GIB:.3f}"
                for submit, work in zip(each.submit_s.tolist(), each.work_s.tolist(), strict=True):
                    writer.writerow([each.id, each.user, f"{submit:.3f}", f"{work:.3f}", *facts])
    except OSError as error:
        raise BadDemand(f"save: {str(path)!r} cannot be written ({error.strerror}).") from None


def _add_lease(found: dict[str, Kernel], row: Mapping[str, object]) -> None:
    """Takes a row of the leases. What asked for no GPU is left out, and so are wishes for servers that are not here."""
    try:
        demand = msgspec.json.decode(str(row["demand"]), type=Demand)
        devices = set(msgspec.json.decode(str(row["devices"]), type=list[str]))
    except msgspec.DecodeError as error:
        raise BadDemand(f"ledger: the lease of session {row['session']} cannot be read: {error}.") from None
    if demand.gpus <= 0:
        return
    demand = msgspec.structs.replace(demand, constraints=Constraints(), near=(), cpus=None, host_memory=None)
    ended = None if row["ended_at"] is None else float(row["ended_at"])  # type: ignore[arg-type]
    opened = float(row["opened_at"])  # type: ignore[arg-type]
    known = found.get(str(row["session"]))
    if known is None:
        found[str(row["session"])] = Kernel(str(row["user"]), str(row["server"]), demand, opened, ended, devices)
    else:
        known.demand, known.devices = demand, known.devices | devices
        known.ended_at = None if ended is None or known.ended_at is None else max(known.ended_at, ended)


def _add_stretch(kernel: Kernel, at: float, rows: list[Mapping[str, float]]) -> None:
    """Takes the rows of one stretch, one for each of its devices."""
    busy = {str(row["device"]): min(row["used_s"] / row["known_s"], 1.0) for row in rows if row["known_s"] > 0}
    kernel.devices |= {str(row["device"]) for row in rows}
    kernel.used |= {device for device, part in busy.items() if part >= LEAST}
    held_s = min(max(row["held_s"] for row in rows), float(BUCKET_S))
    kernel.stretches.append(Stretch(at, held_s, max(busy.values(), default=None)))


def _cluster(kernels: Iterable[Kernel]) -> str:
    """Every server that is in the ledger, with the devices of it that anybody ever had."""
    servers: dict[str, set[str]] = {}
    for kernel in kernels:
        servers.setdefault(kernel.server, set()).update(kernel.devices)
    sizes = Counter(max(len(devices), 1) for devices in servers.values())
    return "+".join(f"{count}x{size}x{MODEL}" for size, count in sorted(sizes.items()))


def _read_only(url: str, folder: Path) -> str:
    """A URL by which nothing of the ledger can be changed: of a copy where it is an SQLite file."""
    if url.startswith("postgresql") and "options=" not in url:
        return f"{url}{'&' if '?' in url else '?'}options=-c%20default_transaction_read_only%3Don"
    found = re.fullmatch(r"sqlite(?:\+\w+)?://(?:/([^?]*))?(?:\?.*)?", url)
    if found is None:
        return url
    if found[1] in (None, "", ":memory:"):
        raise BadDemand(f"ledger: {url} lives in memory and ends with its broker; use sqlite:///FILE.")
    file = Path(found[1])
    if not file.is_file():
        raise BadDemand(f"ledger: there is no file {file}; `jupyter gpushare doctor` says where the ledger is.")
    copy = folder / "ledger.sqlite"
    live = file.with_name(f"{file.name}-wal").exists()  # else nobody has it open, and SQLite needs no files beside it
    how = "mode=ro" if live else "immutable=1"
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(file))}?{how}", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise BadDemand(f"ledger: {file} cannot be read ({error}).") from None
    return f"sqlite:///{copy}"
