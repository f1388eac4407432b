"""What we keep on this machine, and whom we talk to."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from .finding import Finding

REACH_S = 2.0
ROOM_BYTES = 50 * 2**20  # what a ledger should have left to grow


def lock_folder(find: Callable[[], Path]) -> Finding:
    """Where brokers on this machine exclude each other."""
    try:
        return Finding(check="device locks", state="ok", finding=f"In {find()}.")
    except OSError as error:
        return Finding(
            check="device locks",
            state="broken",
            finding=f"{error.filename}: {error.strerror}.",
            cause="Two brokers could lend one device, so none will be lent.",
            fix="Set GPUSHARE_LOCK_DIR to a folder on this machine that all its users may write, with mode 1777.",
        )


def ledger(url: str, why: str | None, free: Callable[[Path], int] | None = None) -> Finding:
    """The default ledger: `why` says why it is not in its usual place."""
    if why is not None:
        fix = 'Set c.GPUShare.ledger_url, such as "sqlite:////a/local/disk/ledger.sqlite".'
        return Finding(check="ledger", state="warning", finding=f"{url}.", cause=why, fix=fix)
    folder = Path(url.removeprefix("sqlite:///")).parent
    left = free(folder) if free else shutil.disk_usage(folder).free
    if left < ROOM_BYTES:
        return Finding(
            check="ledger",
            state="warning",
            finding=f"{url}: {left // 2**20} MiB left on its disk.",
            cause="A full disk means leases that are not kept over a restart.",
            fix="Make room, or set c.GPUShare.ledger_url to another disk.",
        )
    return Finding(check="ledger", state="ok", finding=f"{url}, on a local disk.")


def hub(environ: Mapping[str, str]) -> Finding:
    if "JUPYTERHUB_API_URL" not in environ:
        return Finding(check="hub", state="missing", finding="Not in use.")
    user = environ.get("JUPYTERHUB_USER", "an unknown user")
    return Finding(check="hub", state="ok", finding=f"This is the server of {user} under a JupyterHub.")


def bus(url: str, reach: Callable[[str, int], str | None] | None = None) -> Finding:
    """How broker and GPU servers talk: `reach` says why a NATS server does not answer, None where it does."""
    if not url:
        return Finding(check="bus", state="ok", finding="Inside the server's own process: one machine needs no other.")
    places = [(part.hostname or "", part.port or 4222) for part in map(urlsplit, url.split(","))]
    trouble = {f"{host}:{port}": (reach or _reach)(host, port) for host, port in places}
    well = [place for place, why in trouble.items() if why is None]
    if well:
        return Finding(check="bus", state="ok", finding=f"NATS answers at {', '.join(well)}.")
    place, why = next(iter(trouble.items()))
    return Finding(
        check="bus",
        state="broken",
        finding=f"NATS does not answer at {', '.join(trouble)}.",
        cause=f"{place}: {why}.",
        fix="Start nats-server there with JetStream (-js), open its port, or mend c.GPUShare.bus_url.",
    )


def _reach(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=REACH_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
