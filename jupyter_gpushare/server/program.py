"""What the agent and the broker as programs of their own share: configuration, log, bus, state, and how they end."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from traitlets import TraitError
from traitlets.config import Config
from traitlets.config.loader import ConfigFileNotFound, PyFileConfigLoader

from ..broker.storage import SYSTEM_FOLDER, private_folder
from ..config import GPUShare, Policy
from ..errors import BadDemand
from .socket import folder

if TYPE_CHECKING:
    from ..bus.nats import NatsBus

LOOK_S = 1.0  # between two looks whether the process that started this one still lives


def configured(file: str, settings: str = "") -> tuple[GPUShare, Policy]:
    """The traits of a config file, and over them those of `settings` (JSON by class). Raises BadDemand, one line."""
    config = Config()
    try:
        if file:
            config.merge(_read(Path(file)))
        config.merge(json.loads(settings or "{}"))
        share, policy = GPUShare(config=config), Policy(config=config)
    except (TraitError, ValueError) as error:
        raise BadDemand(str(error)) from None
    _check_client(share)
    return share, policy


def _check_client(config: GPUShare) -> None:
    """Raises BadDemand where there is a bus between machines and its client is not installed."""
    if config.bus_url and importlib.util.find_spec("nats") is None:
        raise BadDemand("GPUShare.bus_url: nats-py is not installed here; pip install 'jupyter-gpushare[hub]'.")


def _read(file: Path) -> Config:
    try:
        return PyFileConfigLoader(file.name, path=str(file.parent)).load_config()
    except ConfigFileNotFound:
        raise BadDemand(f"--config: there is no file {file}.") from None
    except OSError as error:
        raise BadDemand(f"--config: {file} cannot be read ({error.strerror}).") from None
    except Exception as error:  # noqa: BLE001 - a config file is a program, and may fail as any
        said = " ".join(str(error).split())
        raise BadDemand(f"--config: {file} fails ({type(error).__name__}: {said}).") from None


def log_as(name: str) -> None:
    """This process's log: lines on standard error, where systemd and the hub take them from."""
    logging.basicConfig(level=logging.INFO, format=f"[%(levelname)1.1s %(asctime)s {name}] %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)  # a ledger's tables are made and migrated in silence


def keeps_much() -> None:
    """For a process with the records of thousands of sessions: Python looks through all of them less often.

    At 3,000 sessions its collector took 15 % of a broker's time, and found nothing: records are in no cycles.
    """
    gc.set_threshold(10_000, 20, 50)


def nats_bus(config: GPUShare, name: str, *, creates: bool) -> NatsBus:
    """The bus between machines, not connected yet. `creates`: it may make NATS' buckets, as a broker may.

    Raises BadDemand where its client is not installed.
    """
    _check_client(config)
    from ..bus.nats import NatsBus

    return NatsBus(config.bus_url, name=name, ca_file=config.bus_ca_file, creates=creates)


def state_folder() -> Path:
    """Where a program keeps what must outlive it: the folder of its unit, root's own, or the user's runtime folder.

    Raises BadDemand where it cannot be had for this user alone.
    """
    unit = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    try:
        if unit:
            return private_folder(Path(unit))
        return private_folder(SYSTEM_FOLDER / "0") if os.getuid() == 0 else folder()
    except OSError as error:
        raise BadDemand(f"STATE_DIRECTORY: {error}.") from None


def end_asked() -> asyncio.Event:
    """Set at SIGTERM and SIGINT, from now on."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    return asked


async def until(asked: asyncio.Event, parent: int | None = None) -> None:
    """Returns when the end is asked for, or when `parent` is this process's parent no more."""
    while not asked.is_set() and parent in (None, os.getppid()):
        try:
            await asyncio.wait_for(asked.wait(), LOOK_S)
        except asyncio.TimeoutError:
            continue
