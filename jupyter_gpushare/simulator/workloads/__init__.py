"""The workloads that can be simulated, by name: which engine runs each, and which module here loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from ...errors import BadDemand

Engine = Literal["packing", "jobs", "sessions"]

DATA = Path("../shared/traces")  # where trace files are looked for, relative to the repository
OPENB = "default cpu050 cpu100 cpu200 cpu250 gpushare40 gpushare60 gpushare80 gpushare100 gpuspec10 gpuspec20 gpuspec25"
OPENB += " gpuspec33 multigpu20 multigpu30 multigpu40 multigpu50"


class Entry(NamedTuple):
    """A workload or a format of files.

    `engine` is a module of this simulator with a function `run`, `loader` a module of this folder.
    """

    engine: Engine
    loader: str
    text: str


_OPENB = "Alibaba 2023: demands arrive until the cluster is full, none leaves"

WORKLOADS: dict[str, Entry] = {
    **{f"openb-{name}": Entry("packing", "openb", f"{_OPENB} (list {name})") for name in OPENB.split()},
    "shockwave-120": Entry("jobs", "jobs", "120 training jobs on 32 V100, batch sizes that change on the way"),
    "gavel-single": Entry("jobs", "jobs", "one-device jobs on 36 V100, 36 P100 and 36 K80"),
    "philly": Entry("jobs", "jobs", "Microsoft's training jobs of 2017"),
    "notebooks": Entry("sessions", "notebooks", "a month of notebooks, fitted to Adobe's sessions"),
    "training-cluster": Entry("sessions", "scenarios", "training tasks that were given more than they use"),
    "render-farm": Entry("sessions", "scenarios", "compute- and data-bound tasks mixed without regard"),
}
FORMATS: dict[str, Entry] = {
    "openb": Entry("packing", "openb", "openb:PODS.csv, with --cluster openb:NODES.csv"),
    "philly": Entry("jobs", "jobs", "philly:JOBS.csv"),
    "jobs": Entry("jobs", "jobs", "jobs:FILE.trace, with --throughputs FILE.json"),
    "sessions": Entry("sessions", "sessions", "sessions:BURSTS.csv"),
}


def find(name: str) -> Entry:
    """The entry of a workload's name, or of `FORMAT:FILE`. Raises BadDemand naming what there is."""
    form, colon, _ = name.partition(":")
    entry = FORMATS.get(form) if colon else WORKLOADS.get(name)
    if entry is None and name.startswith("openb-"):  # any other list of that family that lies in the data folder
        entry = FORMATS["openb"]
    if entry is None:
        known = ", ".join([*WORKLOADS, *(f"{form}:FILE" for form in FORMATS)])
        raise BadDemand(f"workload: {name!r} is not known; use one of {known}.")
    return entry
