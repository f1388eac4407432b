"""What there is to simulate, as `simulate --list` prints it: workloads with their files, policies, clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import BadDemand
from .cluster import MODELS
from .packing import POLICIES as PACKING
from .policies.jobs import POLICIES as JOBS
from .policies.sessions import POLICIES as SESSIONS
from .workloads import FORMATS, WORKLOADS, Engine, Entry, find
from .workloads.jobs import GAVEL_SPEEDS, PHILLY_JOBS, SHOCKWAVE_SPEEDS, SHOCKWAVE_TRACE
from .workloads.openb import NODES, PODS

POLICIES: dict[Engine, Mapping[str, object]] = {"packing": PACKING, "jobs": JOBS, "sessions": SESSIONS}
TEXTS: dict[Engine, dict[str, str]] = {
    "packing": {
        "gpushare": "ours, default weights; learns as it goes what typically comes",
        "gpushare+energy": "ours, power weighing more",
        "random": "any server with room",
        "first-fit": "the first server with room",
        "round-robin": "the next server with room, going round",
        "best-fit": "the server that would have least left",
        "dot-product": "the server whose free resources match the demand least (Tetris, reversed)",
        "gpu-packing": "devices in use first, then servers in use, then idle servers",
        "gpu-clustering": "demands of a like number of devices together",
        "fgd": "fragmentation gradient descent (ATC 2023)",
    },
    "jobs": {
        "gpushare": "ours, default weights",
        "gpushare+packing": "ours, two jobs may share a device",
        "max-min": "Gavel's max-min fairness (OSDI 2020)",
        "finish-time-fair": "Gavel's finish-time fairness",
        "max-sum-throughput": "the largest sum of steps per second",
        "las-blind": "least attained service, every device taken for the same (Tiresias)",
        "themis-blind": "finish-time fairness, every device taken for the same (Themis)",
        "shortest-first": "shortest remaining time first",
        "fifo": "first come, first served until done",
    },
    "sessions": {
        "gpushare": "ours, takes idle devices back when somebody waits",
        "gpushare-always": "ours, takes idle devices back whoever waits",
        "static": "whole devices from a kernel's start to its end",
        "static-first-to-last": "whole devices from the first cell to the last, which only an oracle knows",
        "first-fit": "shares as asked for, on the first device that fits",
        "round-robin": "shares as asked for, devices in turn",
        "idle-culler": "whole devices; a kernel idle for 30 min is ended and its state lost",
        "notebookos": "whole devices for the length of a cell (NotebookOS, ASPLOS 2026)",
        "timeslice": "four sessions to a device, the driver divides time, nobody minds memory",
    },
}
ENGINES: dict[Engine, str] = {
    "packing": "demands that arrive and never leave",
    "jobs": "training jobs, in rounds",
    "sessions": "notebooks and tasks with bursts",
}
FILES = {  # format -> what is in such a file
    "openb": "a pod list as openb's; goes with --cluster openb:NODES.csv",
    "philly": "columns timestamp, duration, num_gpus, cluster; a row a job",
    "jobs": "tab separated, as Gavel's and Shockwave's traces; goes with --throughputs FILE.json",
    "sessions": "columns session, user, submit_s, duration_s, gpus, memory_gib; a row a burst",
}


class Source(NamedTuple):
    """Files a workload reads, below the data folder, and where they come from."""

    files: tuple[str, ...]
    url: str


OPENB_URL = "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023/csv"
SOURCES = {
    "shockwave-120": Source((SHOCKWAVE_TRACE, SHOCKWAVE_SPEEDS), "https://github.com/uw-mad-dash/shockwave"),
    "gavel-single": Source((GAVEL_SPEEDS,), "https://github.com/stanford-futuredata/gavel"),
    "philly": Source((PHILLY_JOBS,), "https://github.com/petuum/adaptdl/tree/osdi21-artifact"),
}


def source(workload: str) -> Source | None:
    """None: it is generated, or its file is named by the workload itself."""
    if workload.startswith("openb-"):
        return Source((str(NODES), PODS.format(workload.removeprefix("openb-"))), OPENB_URL)
    return SOURCES.get(workload)


def missing(workload: str, data: Path) -> list[str]:
    """The files of a workload that are not below the data folder."""
    wanted = source(workload)
    return [] if wanted is None else [file for file in wanted.files if not (data / file).is_file()]


def checked(workload: str, policies: tuple[str, ...], data: Path) -> Entry:
    """The workload's entry, if it can be run under each of these policies. Raises BadDemand naming what to use."""
    entry = find(workload)
    known = POLICIES[entry.engine]
    for policy in policies:
        if policy not in known:
            elsewhere = any(policy in others for others in POLICIES.values())
            why = f"does not fit {workload}" if elsewhere else "is not known"
            raise BadDemand(f"policy: {policy!r} {why}; use one of {', '.join(known)}.")
    absent, origin = missing(workload, data), source(workload)
    if absent and origin is not None:
        raise BadDemand(
            f"workload: {workload} needs {absent[0]}, which is not in {data}; get it from {origin.url}, "
            "or name the folder that has it with --data."
        )
    return entry


def as_text(data: Path) -> str:
    """Everything there is, a line each, and which trace files are missing."""
    return "\n".join(_lines(data))


def _lines(data: Path) -> Iterator[str]:
    yield f"Workloads (--workload; trace files are looked for in {data})"
    absent = {name: missing(name, data) for name in WORKLOADS}
    for name, entry in WORKLOADS.items():
        files = "generated" if source(name) is None else "missing" if absent[name] else "found"
        yield f"  {name:<20} {files:<10} {entry.engine:<9} {entry.text}"
    for name, entry in FORMATS.items():
        form = entry.text.partition(",")[0]
        yield f"  {form:<20} {'your file':<10} {entry.engine:<9} {FILES[name]}"
    wanted: dict[str, list[str]] = {}
    for name, files in absent.items():
        if files and (origin := source(name)):
            wanted.setdefault(origin.url, []).extend(files)
    if wanted:
        yield ""
        yield f"Missing trace files, by where to get them (each goes to this path below {data})"
        for url, files in wanted.items():
            yield f"  {url}"
            yield from (f"    {file}" for file in dict.fromkeys(files))
    for engine, what in ENGINES.items():
        yield ""
        yield f"Policies for {engine}: {what}"
        for policy in POLICIES[engine]:
            yield f"  {policy:<21} {TEXTS[engine][policy]}"
    yield ""
    yield "Clusters (--cluster; each workload has its own by default)"
    yield f"  {'packing':<9} openb:NODES.csv"
    yield f"  {'jobs':<9} 32xv100+16xk80: <devices>x<kind>, of the kinds that the workload has speeds for"
    yield f"  {'sessions':<9} 4x8xA100+2x4xT4: <servers>x<devices>x<model>, of {', '.join(MODELS)}"
