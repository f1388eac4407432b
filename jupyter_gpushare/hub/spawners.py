"""What the choice of a GPU server means for each kind of spawner: a class and a choice in, changes out.

A class is known by its name or that of one it derives from, so none of them needs to be installed.
Sources: kubespawner 7.1, dockerspawner 14.0, batchspawner 1.3, jupyterhub-systemdspawner 1.0, sshspawner 0.0.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .changes import Change

HOST_LABEL = "kubernetes.io/hostname"
LABEL_MAX = 63  # characters of a label's value; a pod with a longer one is refused
NAME = "GPUSHARE_SERVER_NAME"  # tells a user's server which machine it is on, where its host name does not
WHERE: dict[str, Any] = {  # by class: what is filled in when it is there, wherever that is
    "KubeSpawner": {"name": NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    "SwarmSpawner": "{{.Node.Hostname}}",
}
OPTIONS = ("batch_script", r"\{\s*options\b")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a user's server shall start.

    `gpus` were chosen for this server, 0 where nothing was: what its user had of late chooses a place, and requests
    nothing. `resource`: how GPUs are called where they are requested, "" not at all.
    """

    server: str
    gpus: float
    resource: str = ""

    @property
    def whole(self) -> int:
        """How many whole GPUs are asked for; shares are lent by the service, so no spawner requests them."""
        return int(self.gpus) if self.gpus >= 1 else 0


Applier = Callable[[Chosen], tuple[Change, ...]]


def kube(chosen: Chosen) -> tuple[Change, ...]:
    """Prefers the node, so that a full one is no obstacle."""
    if len(chosen.server) > LABEL_MAX:
        return ()
    term = {"matchExpressions": [{"key": HOST_LABEL, "operator": "In", "values": [chosen.server]}]}
    taken = tuple((trait, HOST_LABEL.replace(".", r"\.")) for trait in ("node_selector", "node_affinity_required"))
    return (
        Change("node_affinity_preferred", {"weight": 100, "preference": term}, "append", unless=taken),
        *_if(chosen.whole, "extra_resource_limits", {chosen.resource: str(chosen.whole)}, chosen),
    )


def swarm(chosen: Chosen) -> tuple[Change, ...]:
    """A service that runs on that node only; GPUs are a node's generic resources."""
    taken = (("extra_placement_spec", r"node\.(hostname|id)\s*=="),)
    return (
        Change("extra_placement_spec", {"constraints": [f"node.hostname=={chosen.server}"]}, unless=taken),
        *_if(chosen.whole, "extra_resources_spec", {"generic_resources": {chosen.resource: chosen.whole}}, chosen),
    )


def docker(chosen: Chosen) -> tuple[Change, ...]:
    """All GPUs of the one machine there is: which of them a kernel sees is the service's business."""
    request = {"driver": chosen.resource, "count": -1, "capabilities": [["gpu"]]}
    taken = (("extra_host_config", r"device_requests|'runtime'"),)
    return _if(1, "extra_host_config", {"device_requests": [request]}, chosen, taken)


def slurm(chosen: Chosen) -> tuple[Change, ...]:
    taken = (
        ("req_options", r"(?<!\S)(-w|--nodelist|-F|--nodefile)\b"),
        ("batch_script", r"(?m)^#SBATCH\s.*(?<!\S)(-w|--nodelist|-F|--nodefile)\b"),
    )
    asked = (("req_options", r"--g(res|pus)\b"), ("batch_script", r"(?m)^#SBATCH\s+--(gpus|gres=[^{])"))
    gres, place = f"{chosen.resource}:{chosen.whole}", (("batch_script", r"\{\s*gres\b"),)
    return (
        Change("req_options", f"--nodelist={chosen.server}", "join", unless=taken, only=(OPTIONS,)),
        *_if(chosen.whole, "req_gres", gres, chosen, asked, how="fill", only=place),
        *_batch(chosen),
    )


def torque(chosen: Chosen) -> tuple[Change, ...]:
    taken = (("req_options", r"\b(host|nodes)="),)
    return (
        Change("req_options", f"-l host={chosen.server}", "join", unless=taken, only=(OPTIONS,)),
        *_batch(chosen),
    )


def gridengine(chosen: Chosen) -> tuple[Change, ...]:
    taken = (("req_options", r"\b(h|hostname)="),)
    gpus, asked = f"-l {chosen.resource}={chosen.whole}", (("req_options", rf"\b{re.escape(chosen.resource)}="),)
    return (
        Change("req_options", f"-l hostname={chosen.server}", "join", unless=taken, only=(OPTIONS,)),
        *_if(chosen.whole, "req_options", gpus, chosen, asked, how="join"),
        *_batch(chosen),
    )


def condor(chosen: Chosen) -> tuple[Change, ...]:
    """`Machine` is a name with its domain; a server's name may be without."""
    host = f'regexp("^{chosen.server}(\\.|$)", Machine)'.replace("\\", "\\\\")
    taken = (("req_options", r"(?i)\brequirements\s*="),)
    asked = (("req_options", r"(?i)\brequest_gpus\s*="),)
    return (
        Change("req_options", f"requirements = {host}", "join", by="\n", unless=taken, only=(OPTIONS,)),
        *_if(chosen.whole, "req_options", f"request_gpus = {chosen.whole}", chosen, asked, how="join", by="\n"),
        *_batch(chosen),
    )


def batch(chosen: Chosen) -> tuple[Change, ...]:
    """Of the other batch systems only what all have: their scripts have no place for a node that goes with the rest."""
    return _batch(chosen)


def ssh(chosen: Chosen) -> tuple[Change, ...]:
    """Of the hosts to choose from, the chosen one."""
    there = (("remote_hosts", rf"(?i)'{re.escape(chosen.server.split('.')[0])}[.']"),)
    return (Change("remote_hosts", chosen.server, "narrow"), Change("environment", {NAME: chosen.server}, only=there))


def here(chosen: Chosen) -> tuple[Change, ...]:
    """Servers run on the hub's own machine: there is nothing to choose."""
    return ()


def unknown(chosen: Chosen) -> tuple[Change, ...]:
    """What it does with the name is its own business."""
    return (Change("environment", {"GPUSHARE_CHOSEN_SERVER": chosen.server}),)


ON_ONE_MACHINE = (docker, here)  # no choice between servers
APPLIERS: dict[str, Applier] = {
    "KubeSpawner": kube,
    "SwarmSpawner": swarm,
    "DockerSpawner": docker,
    "SlurmSpawner": slurm,
    "PBSSpawner": batch,
    "TorqueSpawner": torque,
    "GridengineSpawner": gridengine,
    "CondorSpawner": condor,
    "BatchSpawnerBase": batch,
    "SSHSpawner": ssh,
    "SystemdSpawner": here,
    "LocalProcessSpawner": here,
}


def applier(kind: type) -> Applier:
    """What is known of a spawner's class, or of the nearest one that it derives from.

    One that has hosts to choose from does not start servers here, even where it runs a local program for it.
    """
    known = (APPLIERS[base.__name__] for base in kind.__mro__ if base.__name__ in APPLIERS)
    found = next(known, unknown)
    return ssh if found in (here, unknown) and hasattr(kind, "remote_hosts") else found


def told(kind: type, variables: dict[str, str]) -> tuple[Change, ...]:
    """Variables for a user's server. A batch system passes on only those whose names it was told."""
    bases = [base.__name__ for base in kind.__mro__]
    known = next((WHERE[base] for base in bases if base in WHERE), None)
    where = {} if known is None else {NAME: known}
    passed_on = Change("req_keepvars_extra", ",".join(variables), "join", by=",")
    return (Change("environment", variables | where), *([passed_on] if "BatchSpawnerBase" in bases else []))


def _batch(chosen: Chosen) -> tuple[Change, ...]:
    """For scripts that name {ngpus}."""
    return _if(chosen.whole, "req_ngpus", str(chosen.whole), chosen, how="fill")


def _if(
    count: int, trait: str, value: Any, chosen: Chosen, unless: tuple[tuple[str, str], ...] = (), **more: Any
) -> tuple[Change, ...]:
    """A request for GPUs, where GPUs are to be requested at all."""
    return (Change(trait, value, unless=unless, **more),) if count and chosen.resource else ()
