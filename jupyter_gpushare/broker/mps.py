"""Sessions under MPS: which server a kernel is a client of, how much of the device it may use, and what it is told.

A process finds its MPS server, and its limits, in the environment it was started with: both hold until its restart.
"""

from __future__ import annotations

from ..model import Demand
from .port import Settings
from .records import Cluster, Session

FEW = ("no_such_device", "too_few_devices")  # refusals that this may be the reason for
ONE_ONLY = "One process can use only one GPU that is under MPS, or one MIG instance, so a kernel gets one of those."


def keeps_apart(cluster: Cluster, demand: Demand, why: str) -> bool:
    """Is it for how the devices are shared that this demand for several of them was refused with `why`?"""
    shared = any(record.seen.sharing in ("mps", "mig") for record in cluster.devices.values())
    return why in FEW and demand.devices > 1 and shared


def join(cluster: Cluster, settings: Settings, session: Session) -> None:
    """At a kernel's start: it becomes a client of its device's server, if that has one that serves its user.

    Its ceiling is its guarantee x `mps_burst`. A multi-GPU session joins none: a process finds one server only, and
    every device has its own.
    """
    session.mps_pipe, session.mps_server, session.ceiling = None, None, 1.0
    record = cluster.devices.get(session.mask[0]) if len(session.mask) == 1 else None
    mps = record.seen.mps if record is not None else None
    if mps is not None and mps.owner in (None, session.user):
        session.mps_pipe, session.mps_server = mps.pipe, mps.server
        session.ceiling = min(1.0, session.demand.guarantee * settings.mps_burst)


def cut_off(cluster: Cluster, session: Session, where: str) -> str | None:
    """What a kernel on the device `where` is told when its MPS server is gone, None while all is well."""
    record = cluster.devices.get(session.mask[0]) if session.mps_pipe is not None and session.mask else None
    if record is None or session.pid is None or not session.live:
        return None
    mps = record.seen.mps
    if mps is None:
        return (
            f"The MPS server of {where} is away, so this kernel's GPU work fails. Restart the kernel: it starts without"
            f" MPS then. {record.seen.reason or ''}".rstrip()
        )
    computed = session.context or session.last_use is not None
    if computed and session.mps_server is not None and mps.server != session.mps_server:
        return f"The MPS server of {where} ended, and this kernel's GPU work with it. Restart the kernel."
    return None
