"""A small cluster in few words, and a model of what a broker does with decisions.

``World([GPU("a")], [Notebook("n1", on="a", lease=True, state="idle")]).state()`` is a State; ``world.step()``
decides and carries out. Times are seconds of the world's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from jupyter_gpushare import model
from jupyter_gpushare.core.decide import decide
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.core.state import Devices, Placements, Sessions, State, Users

GIB = 2**30
NAN = float("nan")
RUNGS = ("trim", "unbind", "park", "stop")


@dataclass
class GPU:
    uuid: str
    server: str = "alpha"
    model: str = "A100"
    offered: bool = True
    fresh: bool = True
    single: bool = False
    blocked: bool = False
    can_park: bool = True
    leaving: bool = False
    tflops: float = 312.0
    bandwidth_gb_s: float = 2039.0
    clock_fraction: float = 1.0
    memory_total: float = 80 * GIB
    memory_used: float = 0.0
    memory_unaccounted: float = 0.0
    utilization: float = 0.0
    utilization_sd: float = 0.0
    memory_utilization: float = 0.0
    temperature_c: float = 40.0
    temperature_limit_c: float = 92.0
    power_w: float = 60.0
    power_idle_w: float = 50.0
    power_limit_w: float = 400.0
    link_gb_s: float = 25.0


@dataclass
class Held:
    """A placement."""

    lease: bool = False
    borrowed: bool = False
    share: float = 0.0
    target: float = NAN
    share_since: float = 0.0
    use: float = NAN
    memory_used: float = NAN
    steady: float = NAN


@dataclass
class Notebook:
    """A session. `on` names devices; what it holds there is built from `lease`, `borrowed` and `memory_used`."""

    id: str
    user: str = "alice"
    state: str = "waiting"
    gpus: float = 0.1
    gpus_max: int = 0
    spread: bool = False
    exclusive: bool = False
    memory: float = NAN
    allowed: tuple[str, ...] | None = None
    near: dict[str, float] | None = None  # server -> seconds to bring its data there
    compute_p: float = 0.5
    confidence: float = 0.0
    horizon: str = "bursty"
    duration_s: float = NAN
    bursting: bool = False
    gated: bool = False
    cooperative: bool = True
    context: bool = False
    waiting_since: float = NAN
    idle_since: float = NAN
    pinned_until: float = -np.inf
    protected_until: float = -np.inf
    unparkable: bool = False
    warned_rung: int = -1
    warned_until: float = NAN
    gaps: tuple[float, ...] = ()
    parked_bytes: float = 0.0
    ran: tuple[float, ...] = ()
    burst_since: float = NAN
    cpus: float = NAN
    host_memory: float = NAN
    on: str | dict[str, Held] = field(default_factory=dict)
    lease: bool = False
    borrowed: bool = False
    memory_used: float = NAN

    def __post_init__(self) -> None:
        if isinstance(self.on, str):
            self.on = {
                uuid: Held(
                    self.lease,
                    self.borrowed,
                    share=self.guarantee if self.lease else 0.0,
                    target=self.guarantee if self.lease else NAN,
                    memory_used=self.memory_used,
                )
                for uuid in self.on.split()
            }

    @property
    def demand(self) -> model.Demand:
        return model.Demand(gpus=self.gpus, exclusive=self.exclusive)

    @property
    def guarantee(self) -> float:
        return self.demand.guarantee

    @property
    def held(self) -> dict[str, Held]:
        assert isinstance(self.on, dict)
        return self.on

    @property
    def leased(self) -> bool:
        return any(held.lease for held in self.held.values())


@dataclass
class World:
    gpus: list[GPU]
    notebooks: list[Notebook] = field(default_factory=list)
    now: float = 1000.0
    policy: Policy = field(default_factory=Policy)
    caps: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    usage: dict[str, float] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    group_weights: dict[str, float] = field(default_factory=dict)
    links: dict[tuple[str, str], float] = field(default_factory=dict)  # GB/s between two servers, both ways

    def __getitem__(self, name: str) -> Notebook:
        return next(notebook for notebook in self.notebooks if notebook.id == name)

    # --- the state as the core sees it ------------------------------------------------------------------------

    def state(self) -> State:
        books, gpus = self.notebooks, self.gpus
        servers = tuple(dict.fromkeys(gpu.server for gpu in gpus))
        models = tuple(dict.fromkeys(gpu.model for gpu in gpus))
        users = tuple(dict.fromkeys(book.user for book in books))
        of_groups = sorted({self.groups.get(user, "") for user in users})
        pools = list(dict.fromkeys(book.allowed for book in books)) or [None]
        nears = [book.near for book in books if book.near is not None]
        row = {gpu.uuid: index for index, gpu in enumerate(gpus)}
        pairs = [(s, uuid, held) for s, book in enumerate(books) for uuid, held in book.held.items()]

        def floats(name: str, of: list) -> np.ndarray:
            return np.array([getattr(item, name) for item in of], dtype=np.float64)

        def bools(name: str, of: list) -> np.ndarray:
            return np.array([getattr(item, name) for item in of], dtype=np.bool_)

        def ints(values: list) -> np.ndarray:
            return np.array(values, dtype=np.int64)

        flags = ("offered", "fresh", "single", "blocked", "can_park", "leaving")
        numbers = [name for name in GPU.__dataclass_fields__ if name not in (*flags, "uuid", "server", "model")]

        def padded(rows: list) -> np.ndarray:
            width = max(map(len, rows), default=0)
            return np.array([[*row, *[NAN] * (width - len(row))] for row in rows], dtype=float).reshape(
                len(rows), width
            )

        held = [pair[2] for pair in pairs]
        return State(
            devices=Devices(
                uuid=tuple(row),
                server=ints([servers.index(gpu.server) for gpu in gpus]),
                model=ints([models.index(gpu.model) for gpu in gpus]),
                **{name: bools(name, gpus) for name in flags},
                **{name: floats(name, gpus) for name in numbers},
            ),
            sessions=Sessions(
                id=tuple(book.id for book in books),
                user=ints([users.index(book.user) for book in books]),
                state=ints([model.STATES.index(book.state) for book in books]),
                count=ints([len(book.held) if book.state == "parked" else book.demand.devices for book in books]),
                most=ints([book.gpus_max for book in books]),
                guarantee=floats("guarantee", books),
                limit=np.where(floats("gpus", books) > 0, 1.0, 0.0),
                whole=np.array([book.demand.whole for book in books], dtype=np.bool_),
                allowed=ints([pools.index(book.allowed) for book in books]),
                near=ints([-1 if book.near is None else nears.index(book.near) for book in books]),
                horizon=ints([model.HORIZONS.index(book.horizon) for book in books]),
                warned_rung=ints([book.warned_rung for book in books]),
                gaps=padded([book.gaps for book in books]),
                ran=padded([book.ran for book in books]),
                **{
                    name: bools(name, books)
                    for name in ("exclusive", "bursting", "gated", "cooperative", "context", "unparkable", "spread")
                },
                **{
                    name: floats(name, books)
                    for name in [
                        "memory",
                        "compute_p",
                        "confidence",
                        "duration_s",
                        "waiting_since",
                        "idle_since",
                        "pinned_until",
                        "protected_until",
                        "warned_until",
                        "parked_bytes",
                        "burst_since",
                        "cpus",
                        "host_memory",
                    ]
                },
            ),
            placements=Placements(
                session=ints([pair[0] for pair in pairs]),
                device=ints([row[pair[1]] for pair in pairs]),
                lease=bools("lease", held),
                borrowed=bools("borrowed", held),
                **{
                    name: floats(name, held)
                    for name in ("share", "target", "share_since", "use", "memory_used", "steady")
                },
            ),
            users=Users(
                name=users,
                weight=np.array([self.weights.get(user, 1.0) for user in users], dtype=np.float64),
                usage=np.array([self.usage.get(user, 0.0) for user in users], dtype=np.float64),
                cap=np.array([self.caps.get(user, np.inf) for user in users], dtype=np.float64),
                group=ints([of_groups.index(self.groups.get(user, "")) for user in users]),
                group_weight=np.array([self.group_weights.get(name, 1.0) for name in of_groups], dtype=np.float64),
            ),
            servers=servers,
            models=models,
            allowed=np.array([[pool is None or gpu.uuid in pool for gpu in gpus] for pool in pools], dtype=np.bool_),
            transfer_s=np.array(
                [[near.get(server, NAN) for server in servers] for near in nears], dtype=np.float64
            ).reshape(len(nears), len(servers)),
            links=np.array(
                [[self.links.get((a, b), self.links.get((b, a), NAN)) for b in servers] for a in servers]
            ).reshape(len(servers), len(servers)),
        )

    # --- what a broker does with decisions --------------------------------------------------------------------

    def decide(self) -> list[model.Decision]:
        return decide(self.state(), self.now, self.policy)

    def step(self) -> list[model.Decision]:
        """Decides and carries out, once."""
        decisions = self.decide()
        self.apply(decisions)
        return decisions

    def settle(self, rounds: int = 20) -> list[model.Decision]:
        """Steps until nothing more is decided; everything that was."""
        everything: list[model.Decision] = []
        for _ in range(rounds):
            decisions = self.step()
            if not decisions:
                return everything
            everything += decisions
        raise AssertionError(f"still deciding after {rounds} rounds: {decisions}")

    def apply(self, decisions: list[model.Decision]) -> None:
        """Every command succeeds at once; a cell that is let through computes. Kernels end when all else is done."""
        for decision in sorted(decisions, key=lambda decision: isinstance(decision, model.StopKernel)):
            book = self[decision.session]
            if isinstance(decision, model.Place):
                self._place(book, decision)
            elif isinstance(decision, model.Expand | model.Shrink):
                held = book.held[decision.device]
                if abs(decision.target - held.target) > 1e-9 or np.isnan(held.target):
                    held.share_since = self.now
                held.share, held.target = decision.share, decision.target
            elif isinstance(decision, model.TrimCaches):
                book.warned_rung, book.warned_until = RUNGS.index("trim"), self.now
            elif isinstance(decision, model.Unbind):
                book.on, book.state = {}, "none"
            elif isinstance(decision, model.Warn):
                self._warn(book, decision)
            elif isinstance(decision, model.ParkSession):
                book.state, book.parked_bytes = "parked", sum(held.memory_used for held in book.held.values())
                book.on = {uuid: Held(target=held.target) for uuid, held in book.held.items()}
                book.context, book.warned_rung, book.warned_until = False, -1, NAN
            elif isinstance(decision, model.ResumeSession):
                each = book.parked_bytes / len(decision.devices)
                book.on = {
                    new: Held(lease=True, share=decision.share, target=book.guarantee, memory_used=each)
                    for new in decision.devices.values()
                }
                book.parked_bytes, book.context = 0.0, True
                self.burst(book.id)
            elif isinstance(decision, model.Move):
                book.on = {decision.devices.get(uuid, uuid): held for uuid, held in book.held.items()}
            elif isinstance(decision, model.StopKernel):
                book.on, book.state, book.context = {}, "dead", False
            elif isinstance(decision, model.Refuse):
                book.state, book.waiting_since, book.gated = "none", NAN, False

    def _place(self, book: Notebook, decision: model.Place) -> None:
        before = book.held
        book.on = {}
        for uuid in decision.devices:
            held = before.get(uuid, Held())
            held.lease, held.borrowed = decision.lease, decision.borrowed
            if decision.lease:
                held.share = decision.share
                held.target = max(book.guarantee, held.share) if np.isnan(held.target) else held.target
            book.held[uuid] = held
        book.waiting_since = NAN
        if book.gated or book.bursting:
            self.burst(book.id)
        elif book.state in ("waiting", "none"):
            book.state = "bound"
            book.idle_since = self.now if decision.lease else NAN

    def _warn(self, book: Notebook, decision: model.Warn) -> None:
        if decision.in_s is None:
            book.warned_rung, book.warned_until = -1, NAN
        else:
            book.warned_rung, book.warned_until = RUNGS.index(decision.rung), self.now + decision.in_s

    # --- what kernels do --------------------------------------------------------------------------------------

    def cell(self, name: str) -> None:
        """A cell reaches the gate."""
        book = self[name]
        book.gated, book.waiting_since = True, self.now
        if book.state != "parked":
            book.state = "waiting" if not book.leased else book.state

    def burst(self, name: str) -> None:
        """A cell computes."""
        book = self[name]
        book.gated, book.bursting, book.state, book.context = False, True, "active", True
        book.waiting_since = book.idle_since = NAN
        for held in book.held.values():
            held.memory_used = np.fmax(held.memory_used, 0.0)

    def rest(self, name: str) -> None:
        """The cell ends."""
        book = self[name]
        book.bursting, book.state, book.idle_since = False, "idle", self.now


def acts(decisions: list[model.Decision]) -> list[tuple[str, str]]:
    """What was decided for whom, in short: ``[("place", "n1")]``; shares left out."""
    return [
        (decision.__struct_config__.tag, decision.session)
        for decision in decisions
        if not isinstance(decision, model.Expand | model.Shrink)
    ]
