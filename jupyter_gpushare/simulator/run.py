"""Runs workloads under policies, by name: what `jupyter gpushare simulate` and `compare` call."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from ..core.policy import Weights
from ..errors import BadDemand
from . import catalogue, jobs, packing, sessions
from .cluster import cluster
from .metrics import Metrics
from .policies.jobs import POLICIES as JOBS
from .policies.jobs import ours
from .policies.sessions import POLICIES as SESSIONS
from .script import Workload
from .workloads import DATA, WORKLOADS, Engine, notebooks, scenarios
from .workloads import jobs as traces
from .workloads import sessions as bursts

Say = Callable[[str], None]
Loaded = TypeVar("Loaded", jobs.Workload, Workload)
SEEDS = (42,)
QUIET_S = 1.0

LOADERS: dict[str, Callable[[str, int], Workload]] = {
    "notebooks": notebooks.load,
    "scenarios": scenarios.load,
    "sessions": bursts.load,
}
OBJECTIVES = ((4, 1), (1, 0), (1, 0.5), (1, 1), (1, 2), (1, 4), (0, 1))  # weights of completion and fairness


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run: every policy with every seed.

    Attributes
    ----------
    workload : a name of `--list`, or FORMAT:FILE
    policies : empty for all that fit
    cluster : None for the workload's own
    data : folder of the trace files
    throughputs : table of speeds for `jobs:FILE.trace`
    sessions : how many kernels `notebooks` has; None for its own number
    """

    workload: str
    policies: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    cluster: str | None = None
    data: Path = DATA
    throughputs: Path | None = None
    sessions: int | None = None


class Run(NamedTuple):
    """One workload under one policy with one seed."""

    workload: str
    policy: str
    cluster: str
    seed: int
    metrics: Metrics


EngineRun = Callable[[Asked, str, int], tuple[str, Metrics]]  # told policy and seed; the cluster in words, the figures


def simulate(asked: Asked, say: Say) -> list[Run]:
    """Runs what is asked; `say` hears how far it is. Raises BadDemand before the first of them."""
    entry = catalogue.checked(asked.workload, asked.policies, asked.data)
    if asked.sessions is not None and entry.loader != "notebooks":
        raise BadDemand(f"sessions: {asked.workload} has its own number of sessions; only notebooks can be scaled.")
    if asked.throughputs is not None and not asked.workload.startswith("jobs:"):
        raise BadDemand(f"throughputs: {asked.workload} has its own; only jobs:FILE.trace takes a table.")
    policies = asked.policies or tuple(catalogue.POLICIES[entry.engine])
    call = partial(_run, ENGINES[entry.engine], asked)
    return _each(
        [(f"{policy}, seed {seed}", partial(call, policy, seed)) for policy in policies for seed in asked.seeds], say
    )


def objectives(asked: Asked, say: Say) -> list[Run]:
    """Ours under several weights of completion against fairness, then the other policies that fit.

    Raises BadDemand for a workload that is no job trace: only there do the two pull apart.
    """
    if catalogue.checked(asked.workload, asked.policies, asked.data).engine != "jobs":
        names = ", ".join(name for name, entry in WORKLOADS.items() if entry.engine == "jobs")
        raise BadDemand(f"workload: objectives are weighed on job traces; use one of {names}, not {asked.workload!r}.")
    seed = asked.seeds[0]
    others = asked.policies or tuple(policy for policy in JOBS if not policy.startswith("gpushare"))
    weighed = [
        (f"gpushare {completion:g} : {fairness:g}", partial(_weighed, asked, seed, float(completion), float(fairness)))
        for completion, fairness in OBJECTIVES
    ]
    return _each([*weighed, *((policy, partial(_run, _jobs, asked, policy, seed)) for policy in others)], say)


def check_sessions(policies: Sequence[str], on: str | None) -> None:
    """Raises BadDemand for a policy that does not run sessions, or a cluster that is none."""
    for policy in policies:
        if policy not in SESSIONS:
            raise BadDemand(f"policy: {policy!r} does not fit sessions; use one of {', '.join(SESSIONS)}.")
    if on is not None:
        cluster(on)


def replayed(workload: Workload, policies: Sequence[str], on: str | None, say: Say) -> list[Run]:
    """A workload of sessions that is at hand already, under each policy."""
    where = on or workload.cluster

    def under(policy: str) -> Run:
        return Run(workload.name, policy, where, 0, sessions.run(workload, SESSIONS[policy], cluster(where)))

    return _each([(policy, partial(under, policy)) for policy in policies], say)


def as_json(runs: Sequence[Run]) -> str:
    """Strict JSON: an object for one run, a list of them for several; what is not known is null."""
    rows = [run._asdict() | {"metrics": {name: _strict(value) for name, value in run.metrics.items()}} for run in runs]
    return json.dumps(rows[0] if len(rows) == 1 else rows, indent=2, allow_nan=False)


def _strict(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _each(calls: list[tuple[str, Callable[[], Run]]], say: Say) -> list[Run]:
    """The runs. Each that takes longer than QUIET_S is told of, with the time that is left by the pace so far."""
    began, found = time.monotonic(), list[Run]()
    for done, (label, call) in enumerate(calls):
        spent_s = time.monotonic() - began
        left = f", about {spent_s / done * (len(calls) - done):.0f} s to go" if done and spent_s > 5 else ""
        telling = threading.Timer(QUIET_S, say, [f"[{done + 1}/{len(calls)}] {label}{left}"])
        telling.daemon = True
        telling.start()
        try:
            found.append(call())
        finally:
            telling.cancel()
    return found


def _run(engine: EngineRun, asked: Asked, policy: str, seed: int) -> Run:
    where, found = engine(asked, policy, seed)
    return Run(asked.workload, policy, where, seed, found)


def _weighed(asked: Asked, seed: int, completion: float, fairness: float) -> Run:
    workload, where = _jobs_on(asked, seed)
    found = jobs.run(workload, ours(Weights(completion=completion, fairness=fairness)))
    return Run(asked.workload, f"gpushare {completion:g} : {fairness:g}", where, seed, found)


def _packing(asked: Asked, policy: str, seed: int) -> tuple[str, Metrics]:
    where = asked.cluster
    if where is not None and not where.startswith("openb:"):
        raise BadDemand(f"cluster: {where!r} does not fit {asked.workload}; use openb:NODES.csv.")
    return where or "openb", packing.run(asked.workload, policy, data=asked.data, cluster=where, seed=seed)


def _jobs(asked: Asked, policy: str, seed: int) -> tuple[str, Metrics]:
    workload, where = _jobs_on(asked, seed)
    return where, jobs.run(workload, JOBS[policy](seed))


def _jobs_on(asked: Asked, seed: int) -> tuple[jobs.Workload, str]:
    """The jobs on the devices that are asked for, and these in words."""
    workload = _read(asked, lambda: traces.load(asked.workload, asked.data, seed, asked.throughputs))
    kinds = workload.speeds.kinds
    if asked.cluster is not None:
        capacity = np.zeros(len(kinds), np.int64)
        for part in asked.cluster.split("+"):
            found = re.fullmatch(r"([1-9]\d{0,5})x(\w+)", part.strip())
            if found is None or found[2] not in kinds:
                raise BadDemand(
                    f"cluster: {part!r} does not fit {asked.workload}; use <devices>x<kind> with {', '.join(kinds)}."
                )
            capacity[kinds.index(found[2])] += int(found[1])
        workload = replace(workload, capacity=capacity)
    runs_on = workload.speeds.alone[workload.jobs.stage_type[:, 0]] > 0
    stuck = np.flatnonzero(~((workload.jobs.gpus[:, None] <= workload.capacity) & runs_on).any(axis=1))
    name = "+".join(f"{count}x{kind}" for kind, count in zip(kinds, workload.capacity, strict=True) if count)
    if stuck.size:
        job = int(stuck[0])
        raise BadDemand(
            f"cluster: job {workload.jobs.name[job]} needs {workload.jobs.gpus[job]} devices; {name} is less."
        )
    return workload, name


def _read(asked: Asked, load: Callable[[], Loaded]) -> Loaded:
    """What a loader gives. Raises BadDemand for a file whose values no loader can make sense of."""
    try:
        return load()
    except ValueError as wrong:
        raise BadDemand(f"workload: {asked.workload} cannot be used: {wrong}.") from None


def _sessions(asked: Asked, policy: str, seed: int) -> tuple[str, Metrics]:
    if asked.sessions is None:
        load = LOADERS[catalogue.find(asked.workload).loader]
        workload = _read(asked, lambda: load(asked.workload, seed))
    else:
        workload = notebooks.load(asked.workload, seed, sessions=asked.sessions)
    where = asked.cluster or workload.cluster
    return where, sessions.run(workload, SESSIONS[policy], cluster(where))


ENGINES: dict[Engine, EngineRun] = {
    "packing": _packing,
    "jobs": _jobs,
    "sessions": _sessions,
}
