"""The words all rooms speak: what a node reports, what a session asks, what the core decides, what a node is told.

Units are bytes, seconds, watts, degrees Celsius, TFLOP/s and GB/s; shares and utilisation are fractions 0..1.
A value that could not be read is None, never 0 (design rule 1). Instants never cross a machine: only ages do (rule 7).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from .errors import BadDemand

Kind = Literal["compute", "data", "mixed", "unknown"]
Horizon = Literal["short", "long", "bursty"]
SessionState = Literal[
    "waiting",  # asked for, no device granted yet (a start in line, or a cell that waits for room)
    "bound",  # device chosen, nothing on it
    "active",  # a burst runs on its device
    "idle",  # holds its device, computes nothing
    "parking",  # its GPU memory is being moved to host memory
    "parked",  # its GPU memory lies in host memory
    "resuming",  # its GPU memory is being moved back
    "none",  # no device: none asked, released or unbound
    "lost",  # its device is gone
    "dead",  # its kernel ended
]
DeviceState = Literal["healthy", "lost", "failing", "draining", "unknown"]
Sharing = Literal["timeslice", "mps", "mig", "exclusive"]
Enforced = Literal["target", "ceiling", "partition"]
Why = Literal["leftover", "foreign", "off-lease"]
Rung = Literal["trim", "unbind", "park", "stop"]

KINDS: tuple[Kind, ...] = ("compute", "data", "mixed", "unknown")
HORIZONS: tuple[Horizon, ...] = ("short", "long", "bursty")
STATES: tuple[SessionState, ...] = SessionState.__args__  # type: ignore[attr-defined]


# --- what a session asks for ---------------------------------------------------------------------------------


class Constraints(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session may run; None is anywhere, and so are "" and "any" in a demand that was `checked`.

    `model` matches any part of a device's model name. `server` "here" is the machine of its single-user server.
    """

    model: str | None = None
    server: str | None = None


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a session asks for (contract.md section 3).

    `gpus`: 0 none; below 1 that share of one device is guaranteed and may burst to all of it; a whole number n
    asks for n devices, each guaranteed whole and lent to others while idle.
    """

    gpus: float = 0.1
    gpus_max: int | None = None
    exclusive: bool = False
    memory: int | None = None  # bytes on each device
    duration_s: float | None = None
    cpus: float | None = None
    host_memory: int | None = None  # bytes
    constraints: Constraints = Constraints()
    near: tuple[str, ...] = ()  # "session:<id>" or "data:<path>"
    kind: Kind | None = None  # None: learned from the bursts
    horizon: Horizon | None = None  # None: learned, bursty until then
    spread: bool = False  # a pool's: its devices may lie on several servers, all of them or none

    @property
    def devices(self) -> int:
        """How many devices it needs."""
        return math.ceil(self.gpus)

    @property
    def guarantee(self) -> float:
        """The least share of each of its devices."""
        return 1.0 if self.exclusive else min(self.gpus, 1.0)

    @property
    def whole(self) -> bool:
        """Cannot be met later without a restart, so it may wait at the kernel's start."""
        return self.gpus >= 1 or (self.exclusive and self.gpus > 0)


HERE = "here"  # as a server: the machine of the session's single-user server
LARGEST = 2**63  # what an array and a database column of whole numbers hold
MOST_GPUS = 65536  # more than any cluster has
UNFOLLOWED = {  # fields of other kinds of broker, and why one of a single machine has no use for them
    "gpus_max": "the number of GPUs of a running kernel is fixed; ask for a whole number of gpus",
    "cpus": "a kernel runs where its server does, with whatever CPUs that has",
    "host_memory": "a kernel runs where its server does, with whatever memory that has",
}
Name = Annotated[str, msgspec.Meta(max_length=255)]
PathText = Annotated[str, msgspec.Meta(max_length=4096)]  # the system's own limit
MOST_NEAR = 32  # each is looked up for each server at each decision


def checked(demand: Demand) -> Demand:
    """The demand, an empty constraint as None. Raises BadDemand naming the field, its value and what is allowed."""
    gpus = demand.gpus
    if not math.isfinite(gpus) or gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise BadDemand(f"gpus: {gpus!r} is not usable; allowed are 0, a fraction below 1, or a whole number.")
    if gpus > MOST_GPUS:
        raise BadDemand(f"gpus: {gpus!r} is not usable; at most {MOST_GPUS} can be asked for.")
    for field, why in UNFOLLOWED.items():
        if getattr(demand, field) is not None:
            raise BadDemand(f"{field}: {getattr(demand, field)!r} cannot be followed: {why}.")
    for field in ("memory", "duration_s"):
        value = getattr(demand, field)
        if value is not None and (not math.isfinite(value) or value <= 0):
            raise BadDemand(f"{field}: {value!r} is not usable; it must be greater than 0.")
        if value is not None and value >= LARGEST:
            raise BadDemand(f"{field}: {value!r} is not usable; it must be below 2**63.")
    if len(demand.near) > MOST_NEAR:
        raise BadDemand(f"near: {len(demand.near)} places are too many; at most {MOST_NEAR} can be named.")
    for place in demand.near:
        if not place.startswith(("session:", "data:")) or place.endswith(":"):
            raise BadDemand(f"near: {place!r} is not usable; use session:<id> or data:<path>.")
    where = Constraints(model=_named(demand.constraints.model), server=_named(demand.constraints.server))
    return demand if where == demand.constraints else msgspec.structs.replace(demand, constraints=where)


def _named(name: str | None) -> str | None:
    """What a constraint names, None for anything."""
    stripped = (name or "").strip()
    return None if stripped.lower() in ("", "any") else stripped


# --- what a node reports -------------------------------------------------------------------------------------


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a device as the node attributed it."""

    pid: int
    session: str | None = None  # the session it belongs to
    owner: str | None = None  # user name, None where it could not be read
    memory: int | None = None
    utilization: float | None = None
    why: Why | None = None  # None: its session holds this device
    visible: bool = True  # False: no such process is seen here: it ended, or its pid is of another namespace


class Mps(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs of a device's MPS server."""

    pipe: str  # folder, as CUDA_MPS_PIPE_DIRECTORY names it
    owner: str | None = None  # the only user it serves, None: it serves all
    server: int | None = None  # its pid: another one knows nothing of the clients before


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU or MIG instance as its node last saw it."""

    uuid: str
    index: int  # by PCI order on its server, for people only
    model: str
    state: DeviceState = "healthy"
    reason: str | None = None  # why it is not healthy or not offered, in words
    sharing: Sharing = "timeslice"
    enforced: Enforced | None = None  # what a share is here; None: what it is under that mode
    mps: Mps | None = None  # its MPS server, only while that takes clients
    in_pool: bool = True  # False: outside the inherited mask, or locked by another broker
    can_park: bool = False
    cannot_park: str | None = None  # why not, in words
    memory_total: int | None = None
    memory_used: int | None = None
    memory_unaccounted: int | None = None  # in use, but by no process that could be seen
    utilization: float | None = None
    memory_utilization: float | None = None  # share of time the memory was read or written
    temperature_c: float | None = None
    temperature_limit_c: float | None = None
    power_w: float | None = None
    power_idle_w: float | None = None
    power_limit_w: float | None = None
    pcie_rx_gb_s: float | None = None  # what the device receives and sends (node/traffic.py)
    pcie_tx_gb_s: float | None = None
    nvlink_rx_gb_s: float | None = None  # over all its links
    nvlink_tx_gb_s: float | None = None
    tflops: float | None = None  # dense half precision, at nominal clocks
    bandwidth_gb_s: float | None = None  # device memory
    clock_fraction: float | None = None  # what it delivers now of its nominal clocks; below 1 when throttled
    age_s: float = 0.0  # since these values were read
    processes: tuple[Process, ...] = ()
    legacy_name: str | None = None  # of a MIG instance: MIG-GPU-<uuid>/<gpu instance>/<compute instance>
    processes_known: bool = True  # False: the list could not be read, so an empty one says nothing
    compute_capability: tuple[int, int] | None = None
    xids: tuple[int, ...] = ()  # NVIDIA's error numbers since the sample before, of programs or of the device


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What a node holds for a session; said again after a broker restart."""

    session: str
    alive: bool = True  # a process of its tree lives
    devices: tuple[str, ...] = ()  # where its processes have a context now
    unseen: tuple[str, ...] = ()  # where they may have one: whose the processes there are cannot be told
    memory_used: dict[str, int | None] = {}  # by device
    utilization: dict[str, float | None] = {}  # by device
    pcie_gb_s: float | None = None
    parked_bytes: int | None = None
    moved_bytes: int | None = None  # progress while parking or resuming
    gpu_idle_s: float | None = None  # since its tree last used a device; None: never seen or not readable
    harmed: str | None = None  # what moving its memory destroyed, in words: only a restart of the kernel helps


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that does not work as it should."""

    code: Literal["broker", "ledger", "bus", "nvml", "disk"]
    message: str


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What changed on a server since its last report; everything when `full`."""

    server: str
    epoch: str  # new at every start of the agent
    seq: int
    full: bool = False
    simulated: bool = False
    devices: tuple[Device, ...] = ()
    held: tuple[Held, ...] = ()
    gone: tuple[str, ...] = ()  # sessions whose processes are all gone, devices that vanished
    age_s: float | None = None  # what was said before and is not said here is still so, as of that long ago
    link_gb_s: float = 12.0  # device to host memory, measured or nominal; the cost of parking
    host_memory_free: int | None = None
    findings: tuple[Finding, ...] = ()


# --- what a node is told -------------------------------------------------------------------------------------


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag=str.lower):
    """What a node shall do. Every command has one CommandResult; all of them can be repeated without harm."""

    session: str


class Attach(Command, frozen=True, kw_only=True, tag="attach"):
    """This process tree is that session's."""

    pid: int
    started: float  # the process's start time as psutil gives it: pid alone proves nothing (rule 5)
    user: str
    devices: tuple[str, ...] = ()


class Assign(Command, frozen=True, kw_only=True, tag="assign"):
    """The session may use these devices with these shares; empty: none of them."""

    shares: dict[str, float] = {}


class Detach(Command, frozen=True, kw_only=True, tag="detach"):
    """The session's lease ended. What still lives of its tree is a leftover."""


class Trim(Command, frozen=True, kw_only=True, tag="trim"):
    """Ask the session's kernel to give back what its framework only caches."""


class Park(Command, frozen=True, kw_only=True, tag="park"):
    """Move the session's GPU memory to host memory."""

    timeout_s: float = 60.0


class Resume(Command, frozen=True, kw_only=True, tag="resume"):
    """Move it back, to other devices where `devices` says so (old uuid -> new uuid)."""

    devices: dict[str, str]
    memory: int  # bytes that must be free on the target before anything is tried (rule 8)
    timeout_s: float = 60.0


class Stop(Command, frozen=True, kw_only=True, tag="stop"):
    """End what is left of an ended session, or one process of it."""

    pid: int | None = None


class SayAgain(Command, frozen=True, kw_only=True, tag="sayagain"):
    """Report everything: the broker is new, or missed a report. `session` is ignored."""


class Simulate(Command, frozen=True, kw_only=True, tag="simulate"):
    """All that a kernel declares of itself on its simulated device; repeating it changes nothing."""

    memory: int = 0  # bytes it holds in allocations
    work: str | None = None  # id of a piece of work that runs, None: nothing runs
    seconds: float = 0.0  # how long that work takes alone on its device
    done: float = 0.0  # fraction already done when it was last told: a device that forgot it goes on from there
    utilization: float = 0.0
    memory_utilization: float = 0.0


class Inject(Command, frozen=True, kw_only=True, tag="inject"):
    """A fault for a simulated device: demonstrations and tests. `session` is ignored."""

    device: str
    fault: Literal["lost", "hot", "unreadable", "slow", "none"]


AnyCommand = Attach | Assign | Detach | Trim | Park | Resume | Stop | SayAgain | Simulate | Inject


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `reason` is a slug, `message` is for people."""

    ok: bool
    reason: str | None = None
    message: str = ""
    bytes: int | None = None  # moved, freed
    progress: float | None = None  # of simulated work, 0..1
    again_s: float | None = None  # of a report: soon enough for the next one without news


# --- what the core decides -----------------------------------------------------------------------------------


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """One named part of a placement's fitness."""

    name: str  # compute, data, fragmentation, locality, thermal, energy, stability
    value: float
    weight: float
    text: str


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """A device that lost, and the term that decided it."""

    device: str
    fitness: float
    decisive: str
    text: str


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag_field="act", tag=str.lower):
    """What shall happen to one session. `why` is a slug; the words for people are in core/explain.py."""

    session: str
    why: str


class Place(Decision, frozen=True, kw_only=True, tag="place"):
    """Devices were chosen. Without a lease the session is bound: it holds nothing until its first burst."""

    devices: tuple[str, ...]
    lease: bool
    borrowed: bool = False  # the share comes out of idle holders' guarantees; it ends when they return
    share: float = 0.0
    fitness: float = 0.0
    terms: tuple[Term, ...] = ()
    alternatives: tuple[Alternative, ...] = ()


class Expand(Decision, frozen=True, kw_only=True, tag="expand"):
    device: str
    share: float
    target: float  # the share it could use; the water-filling ceiling from now on


class Shrink(Decision, frozen=True, kw_only=True, tag="shrink"):
    device: str
    share: float
    target: float


class TrimCaches(Decision, frozen=True, kw_only=True, tag="trim"):
    device: str


class Unbind(Decision, frozen=True, kw_only=True, tag="unbind"):
    """Takes a device from a session that has nothing on it; costs nothing."""

    devices: tuple[str, ...]


class Warn(Decision, frozen=True, kw_only=True, tag="warn"):
    """Notice before a rung of the reclaim ladder. `in_s` None takes the notice back."""

    rung: Rung
    in_s: float | None


class ParkSession(Decision, frozen=True, kw_only=True, tag="park"):
    devices: tuple[str, ...]


class ResumeSession(Decision, frozen=True, kw_only=True, tag="resume"):
    devices: dict[str, str]  # old uuid -> new uuid
    memory: int
    share: float = 0.0


class Move(Decision, frozen=True, kw_only=True, tag="move"):
    """Continue on another device: parked here, resumed there."""

    devices: dict[str, str]  # old uuid -> new uuid


class StopKernel(Decision, frozen=True, kw_only=True, tag="stop"):
    pass


class Refuse(Decision, frozen=True, kw_only=True, tag="refuse"):
    """Nothing can ever be given for this demand as the cluster is; `why` names the reason."""


AnyDecision = (
    Place | Expand | Shrink | TrimCaches | Unbind | Warn | ParkSession | ResumeSession | Move | StopKernel | Refuse
)


# --- what a single-user server and a kernel tell the broker ---------------------------------------------------


class SessionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that starts and asks for its place."""

    id: Name  # kernel id
    user: Name
    origin: Name  # the single-user server it belongs to
    label: PathText
    path: PathText | None = None  # of the notebook, None: no notebook
    server: str | None = None  # the machine it runs on; None: simulated devices, any server
    reach: Annotated[tuple[Name, ...], msgspec.Meta(max_length=1024)] = ()  # others its server can start it on
    singleuser: str | None = None  # the hub's name of its single-user server, "" the default one; None: no hub
    demand: Demand | None = None  # None: nothing was asked, so the broker's default (or what was chosen for the path)
    pool: Annotated[tuple[Name, ...], msgspec.Meta(max_length=1024)] | None = None  # its server's mask; None: all
    parent: str | None = None  # of a pool: the session that has it
    restart: bool = False
    wait_s: float = 0.0  # how long a whole-device demand may wait
    when_full: Literal["wait", "cpu", "fail"] = "wait"


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a start: which devices the kernel's mask names."""

    session: str
    state: SessionState
    server: str | None = None  # the machine it shall run on, where the spec left a choice
    devices: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()  # of a pool: where each of its devices is
    indices: tuple[int, ...] = ()
    shared: bool = True  # others may be on these devices: framework hints apply
    mps_pipe: str | None = None  # folder of the MPS server whose client it shall be
    ceiling: float | None = None  # fraction of the device's multiprocessors, under MPS
    memory_limit: int | None = None  # bytes for each of its processes, under MPS
    message: str = ""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The answer at a cell's start: run now, or wait (and ask again)."""

    admitted: bool
    state: SessionState
    devices: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    queue_position: int | None = None
    eta_s: float | None = None
    message: str = ""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, as the door established it (rule 11).

    `user`: sees and changes their own. `kernel`: speaks for one session. `server`: a single-user server of `user`,
    may open, start and end its user's sessions.
    """

    user: str
    role: Literal["user", "kernel", "server"] = "user"
    admin: bool = False
    reads_all: bool = False  # sees what an admin sees, changes only their own
    session: str | None = None  # role kernel: the one session it speaks for
    origin: str | None = None  # role server: which one
