"""Alibaba's production trace of 2023 (openb): servers with GPUs, and demands that arrive until there is no room left.

Trace and arrival protocol: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023. The files are theirs: `openb_node_list_gpu_node.csv` and `openb_pod_list_NAME.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...core.state import Bools, Ints
from ...errors import BadDemand

MILLI = 1000  # of one device
NODES = Path("openb-v2023/openb_node_list_gpu_node.csv")
PODS = "openb-v2023/openb_pod_list_{}.csv"
UNTIL = 1.3  # of the devices' capacity is requested in all


@dataclass(frozen=True, slots=True, eq=False)
class Servers:
    """Row v is server v. CPUs in 1/1000 vCPU, memory in MiB.

    Attributes
    ----------
    name, model : (V,) tuples of str
    cpu, memory, gpus : (V,)
    """

    name: tuple[str, ...]
    model: tuple[str, ...]
    cpu: Ints
    memory: Ints
    gpus: Ints

    def in_order(self, order: Ints) -> Servers:
        """The same servers in another order: the one in which baselines settle ties."""
        names = [self.name[row] for row in order], [self.model[row] for row in order]
        return Servers(*map(tuple, names), self.cpu[order], self.memory[order], self.gpus[order])


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """Row h is a shape of demand; demands of one shape are interchangeable.

    Attributes
    ----------
    cpu, memory : (H,) as in Servers
    count : (H,) devices, 0 for none
    milli : (H,) of each device, 1000 for whole ones
    models : (H,) tuple of the models it may run on, empty for all
    """

    cpu: Ints
    memory: Ints
    count: Ints
    milli: Ints
    models: tuple[frozenset[str], ...]

    def allowed(self, servers: Servers) -> Bools:
        """(H, V) whether a shape may go to a server, by model alone; one without devices may go anywhere."""
        return np.array(
            [
                [count == 0 or not models or model in models for model in servers.model]
                for count, models in zip(self.count.tolist(), self.models, strict=True)
            ]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Servers, shapes of demand, and the demands as rows into the shapes, in order of arrival."""

    servers: Servers
    shapes: Shapes
    demands: Ints

    @property
    def requested(self) -> Ints:
        """(N,) milli-devices of each demand."""
        return np.asarray((self.shapes.count * self.shapes.milli)[self.demands])


def load(name: str, data: Path, cluster: str | None = None) -> Trace:
    """The demands of `openb-NAME` or `openb:PODS.csv`, as listed, on the trace's servers or on `openb:NODES.csv`.

    Raises BadDemand naming the file, line and field that cannot be used.
    """
    pods = Path(name.removeprefix("openb:")) if name.startswith("openb:") else data / PODS.format(name[len("openb-") :])
    nodes = data / NODES if cluster is None else Path(cluster.removeprefix("openb:"))
    return Trace(read_servers(nodes), *read_demands(pods))


def arriving(trace: Trace, seed: int, until: float = UNTIL, order: int = 0) -> Trace:
    """The published arrivals: the list shuffled, then more of it drawn with replacement, up to `until` x capacity.

    The servers' order, by which policies settle ties, is drawn once per run as well: in the published runs names got
    a prefix by chance. `order` draws another one for the same arrivals.
    """
    rng = np.random.default_rng(seed)
    wanted = until * MILLI * int(trace.servers.gpus.sum())
    demands = rng.permutation(trace.demands)
    each = (trace.shapes.count * trace.shapes.milli)[demands]
    while int(each.sum()) < wanted:
        more = rng.choice(trace.demands, trace.demands.size)
        demands = np.concatenate([demands, more])
        each = (trace.shapes.count * trace.shapes.milli)[demands]
    last = int(np.searchsorted(np.cumsum(each), wanted))
    names = np.random.default_rng([seed, order]).permutation(len(trace.servers.name))
    return replace(trace, servers=trace.servers.in_order(names), demands=demands[: last + 1])


def read_servers(path: Path) -> Servers:
    """The servers of a node list; those without GPUs are left out."""
    rows = [row for row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")) if row.whole("gpu") > 0]
    if not rows:
        raise BadDemand(f"{path}: no server with GPUs; a node list has lines with gpu of at least 1.")
    return Servers(
        name=tuple(row.values["sn"] for row in rows),
        model=tuple(row.values["model"] for row in rows),
        cpu=np.array([row.whole("cpu_milli") for row in rows]),
        memory=np.array([row.whole("memory_mib") for row in rows]),
        gpus=np.array([row.whole("gpu") for row in rows]),
    )


def read_demands(path: Path) -> tuple[Shapes, Ints]:
    """The shapes of a pod list, and the shape of each pod in order of the file."""
    known: dict[tuple[int, int, int, int, frozenset[str]], int] = {}
    demands = []
    for row in _rows(path, ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        count, milli = row.whole("num_gpu"), row.whole("gpu_milli")
        if (count and not 0 < milli <= MILLI) or (count > 1 and milli != MILLI):
            raise row.wrong("gpu_milli", "1 to 1000 with one GPU, 1000 with several")
        models = frozenset(filter(None, row.values.get("gpu_spec", "").split("|")))
        shape = row.whole("cpu_milli"), row.whole("memory_mib"), count, milli if count else 0, models
        demands.append(known.setdefault(shape, len(known)))
    if not (demands and any(count for _, _, count, _, _ in known)):
        raise BadDemand(f"{path}: no demand for a GPU; a pod list has lines with num_gpu of at least 1.")
    cpu, memory, count, milli, models = zip(*known, strict=True)
    return Shapes(np.array(cpu), np.array(memory), np.array(count), np.array(milli), models), np.array(demands)


@dataclass(frozen=True, slots=True)
class _Row:
    path: Path
    line: int
    values: dict[str, str]

    def whole(self, field: str) -> int:
        try:
            value = int(self.values[field])
        except ValueError:
            value = -1
        if value < 0:
            raise self.wrong(field, "a whole number of at least 0")
        return value

    def wrong(self, field: str, allowed: str) -> BadDemand:
        return BadDemand(
            f"{self.path}, line {self.line}: {field}: {self.values[field]!r} is not usable; use {allowed}."
        )


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[_Row]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDemand(f"{path}: cannot be read ({error}); see --data for where trace files are looked for.") from None
    table = csv.DictReader(text.splitlines())
    missing = [field for field in needed if field not in (table.fieldnames or ())]
    if missing:
        raise BadDemand(f"{path}: column {missing[0]} is missing; needed are {', '.join(needed)}.")
    for line, values in enumerate(table, start=2):
        if None in values.values():
            raise BadDemand(f"{path}, line {line}: has fewer fields than the first line.")
        yield _Row(path, line, values)
