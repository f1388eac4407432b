"""Which simulated servers and devices there are: ``2x4xA100``, or a JSON file (contract.md section 6)."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import BadDemand
from ..units import GIB
from .performance import lookup

FIELD = "simulated_inventory"
# fmt: off
GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu",
    "nu", "xi", "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)
# fmt: on
SHORTHAND = re.compile(r"(\d+)x(\d+)x(\S.*)")
MOST_SERVERS, MOST_DEVICES = 1000, 64
NAMESPACE = uuid.UUID("6f0d2f0e-5d0a-5c55-9a3c-3c1d4b7f2a10")  # of our own: equal names give equal UUIDs, nothing else


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """What one simulated device is: bytes, TFLOP/s, GB/s, watts, degrees Celsius."""

    uuid: str
    index: int
    model: str
    memory: int
    tflops: float
    bandwidth_gb_s: float
    power_idle_w: float
    power_limit_w: float
    slowdown_c: float


@dataclass(frozen=True, slots=True)
class SimulatedServer:
    """A simulated server: its devices, its link from device to host memory and its host memory in bytes."""

    name: str
    devices: tuple[SimulatedDevice, ...]
    link_gb_s: float = 25.0
    host_memory: int = 256 * GIB


class _Devices(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    count: int = 1
    memory_gib: float | None = None
    tflops: float | None = None
    bandwidth_gb_s: float | None = None
    power_w: tuple[float, float] | None = None
    slowdown_c: float | None = None


class _Server(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    devices: list[_Devices]
    link_gb_s: float = 25.0
    host_memory_gib: float = 256.0


class _Inventory(msgspec.Struct, forbid_unknown_fields=True):
    servers: list[_Server]


def parse_inventory(text: str, salt: str = "") -> tuple[SimulatedServer, ...]:
    """The servers that `text` names. `salt` (host, user) keeps the UUIDs of two people's simulations apart.

    Raises BadDemand with one line that names the field.
    """
    found = SHORTHAND.fullmatch(text.strip())
    if found is None:
        return tuple(_server(server, salt) for server in _read(Path(text)).servers)
    servers, devices, model = int(found[1]), int(found[2]), found[3]
    if not (1 <= servers <= MOST_SERVERS and 1 <= devices <= MOST_DEVICES):
        raise BadDemand(
            f"{FIELD}: {text!r} is not usable; 1 to {MOST_SERVERS} servers of 1 to {MOST_DEVICES} devices are allowed."
        )
    return tuple(_server(_Server(_name(n), [_Devices(model, devices)]), salt) for n in range(servers))


def _name(number: int) -> str:
    return GREEK[number] if number < len(GREEK) else f"server-{number + 1}"


def _read(path: Path) -> _Inventory:
    try:
        inventory = msgspec.json.decode(path.expanduser().read_bytes(), type=_Inventory)
    except OSError as error:
        raise BadDemand(
            f"{FIELD}: {str(path)!r} is neither <servers>x<devices>x<model> nor a readable file ({error.strerror})."
        ) from error
    except msgspec.DecodeError as error:
        raise BadDemand(f"{FIELD}: {path} is no usable JSON: {error}.") from error
    names = [server.name for server in inventory.servers]
    if not names:
        raise BadDemand(f"{FIELD}: {path}: servers: at least one is needed.")
    for name in names:
        if not name or names.count(name) > 1:
            raise BadDemand(f"{FIELD}: {path}: servers[].name: {name!r} must be given and be unique.")
    return inventory


def _server(server: _Server, salt: str) -> SimulatedServer:
    where = f"{FIELD}: server {server.name!r}"
    _positive(where, link_gb_s=server.link_gb_s, host_memory_gib=server.host_memory_gib)
    devices: list[SimulatedDevice] = []
    for group in server.devices:
        if not 1 <= group.count <= MOST_DEVICES:
            raise BadDemand(f"{where}: count: {group.count!r} is not usable; 1 to {MOST_DEVICES} are allowed.")
        first = len(devices)
        devices.extend(_device(group, server.name, first + n, where, salt) for n in range(group.count))
    if not devices:
        raise BadDemand(f"{where}: devices: at least one is needed.")
    return SimulatedServer(server.name, tuple(devices), server.link_gb_s, int(server.host_memory_gib * GIB))


def _device(group: _Devices, server: str, index: int, where: str, salt: str) -> SimulatedDevice:
    known = lookup(group.model)
    facts: dict[str, float] = {}
    for field in ("memory_gib", "tflops", "bandwidth_gb_s", "slowdown_c"):
        value = getattr(group, field)
        if value is None:
            if known is None:
                raise BadDemand(f"{where}: {field}: {group.model!r} is not a known model, so it must be given.")
            value = getattr(known, field)
        facts[field] = value
    if group.power_w is not None:
        power = group.power_w
    elif known is not None:
        power = (known.power_idle_w, known.power_limit_w)
    else:
        raise BadDemand(f"{where}: power_w: {group.model!r} is not a known model, so [idle, limit] must be given.")
    _positive(where, **facts)
    if not 0 <= power[0] < power[1]:
        raise BadDemand(f"{where}: power_w: {list(power)!r} is not usable; [idle, limit] with 0 <= idle < limit.")
    return SimulatedDevice(
        uuid=f"GPU-{uuid.uuid5(NAMESPACE, f'{salt}/{server}/{index}')}",
        index=index,
        model=known.model if known is not None and group.memory_gib is None else group.model,
        memory=int(facts["memory_gib"] * GIB),
        tflops=facts["tflops"],
        bandwidth_gb_s=facts["bandwidth_gb_s"],
        power_idle_w=power[0],
        power_limit_w=power[1],
        slowdown_c=facts["slowdown_c"],
    )


def _positive(where: str, **values: float) -> None:
    for field, value in values.items():
        if value <= 0:
            raise BadDemand(f"{where}: {field}: {value!r} is not usable; it must be greater than 0.")
