"""What admins set, checked: `c.GPUShare.…` and `c.Policy.…`, and the frozen numbers the core takes.

A value that is not usable raises TraitError with one line: the trait, the value, what is allowed.
"""

from __future__ import annotations

import math
import os
import re
import socket
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec
from traitlets import Bool, Bunch, Dict, Enum, Float, List, TraitError, TraitType, Unicode, default, validate
from traitlets.config import Configurable

from . import model
from .core import policy
from .errors import BadDemand
from .learned import Learned
from .units import parse_bytes

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = r"^([01]\d|2[0-3]):[0-5]\d$"
_HTTP = r"https?://[^/\s,][^\s,]*"
_NATS = r"(nats|tls)://[^\s,/]+"
_DAYS = re.compile(rf"({'|'.join(DAYS)})(?:-({'|'.join(DAYS)}))?")
_OBJECTIVES = tuple(policy.Weights.__dataclass_fields__)
Wanted = TypeVar("Wanted")


def _unusable(trait: TraitType, owner: object, value: object, allowed: str) -> NoReturn:
    shown = " ".join(repr(value).split())
    raise TraitError(f"{type(owner).__name__}.{trait.name}: {shown} is not usable; {allowed.rstrip('.')}.")


class OneLine:
    """A trait that can be set in a config file, and that says what is wrong with a value in the house's form."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tag(config=True)

    def error(self, obj: Any, value: Any, error: Exception | None = None, info: str | None = None) -> NoReturn:
        _unusable(self, obj, value, f"it must be {info or self.info()}")


class Choice(OneLine, Enum):
    def info(self, as_rst: bool = False) -> str:
        return "one of " + ", ".join(repr(value) for value in self.values)


class Text(OneLine, Unicode):
    pass


class Switch(OneLine, Bool):
    pass


class Table(OneLine, Dict):
    pass


class Entries(OneLine, List):
    pass


class Number(OneLine, Float):
    """A finite number within bounds; an int where it counts something. None only where that is its default."""

    def __init__(
        self,
        default_value: float | None,
        *,
        least: float = 0.0,
        most: float = math.inf,
        whole: bool = False,
        help: str,  # noqa: A002  traitlets' name
    ) -> None:
        super().__init__(default_value, allow_none=default_value is None, help=help)
        self.least, self.most, self.whole = least, most, whole

    def info(self) -> str:
        bounds = f"of at least {self.least:g}" + ("" if math.isinf(self.most) else f" and at most {self.most:g}")
        return f"a {'whole ' if self.whole else ''}number {bounds}" + (" or None" if self.allow_none else "")

    def validate(self, obj: Any, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.error(obj, value)
        if not self.least <= value <= self.most or (self.whole and value != int(value)):
            self.error(obj, value)
        return int(value) if self.whole else float(value)


def _as(proposal: Bunch, wanted: type[Wanted], *, strict: bool = True) -> Wanted:
    """The proposed value as that type. The error names the place inside it."""
    try:
        return msgspec.convert(proposal.value, wanted, strict=strict)
    except msgspec.ValidationError as error:
        _unusable(proposal.trait, proposal.owner, proposal.value, str(error))


class GPUShare(Configurable):
    """What this server lends to its kernels, and where it keeps and asks for what it knows."""

    devices = Choice(
        ("auto", "nvml", "simulated", "off"),
        "auto",
        help="""
        Which GPUs are lent: `auto` those that NVML shows, none where there is no NVML; `nvml` the same, but its absence
        is reported as a fault; `simulated` those of `simulated_inventory`; `off` none, kernels start as without us.
        """,
    )
    simulated_inventory = Text(
        "2x4xA100",
        help="The simulated GPUs: `<servers>x<devices>x<model>`, such as `1x2xA100`, or the path of a JSON file.",
    )
    broker_url = Text(
        "",
        help="""
        The broker to ask; GPUSHARE_BROKER_URL by default, which a hub's spawner sets. Empty: this machine's
        shared one if its socket is there, else this user's, else one in this server. Otherwise a broker's base URL (`https://…/services/gpushare/`;
        several with commas between them where a standby may take over) or `unix:///run/gpushare/broker.sock`.
        """,
    )
    ledger_url = Text(
        "",
        help="""
        Where leases, usage and decisions are kept: any SQLAlchemy URL, such as `sqlite:////srv/gpushare/ledger.sqlite`
        or `postgresql+psycopg://user:password@host/gpushare`. Empty: SQLite on a local disk, in `/var/lib/gpushare` if
        that folder can be written, else in a folder of the user's that is not on a network file system.
        """,
    )
    bus_url = Text(
        "",
        help="""
        How broker and GPU servers talk. Empty: within the broker's process, which manages this machine's GPUs; or NATS,
        `nats://user:password@host:4222` or `tls://…`, several with commas between them: then every GPU server runs
        `jupyter gpushare agent`, and a broker has no GPUs of its own.
        """,
    )
    bus_ca_file = Text(
        "",
        help="A PEM file with who signed the certificates of NATS servers (`tls://…`). Empty: whom the system trusts.",
    )
    mask_format = Choice(
        ("uuid", "index"),
        "uuid",
        help="""
        How devices are named in CUDA_VISIBLE_DEVICES: `uuid`, or `index` for old libraries that call `int()` on it
        (always together with CUDA_DEVICE_ORDER=PCI_BUS_ID).
        """,
    )
    terminals = Choice(
        ("leave", "hide"),
        "leave",
        help="What a JupyterLab terminal sees: `leave` the server's own mask, or `hide` every GPU.",
    )
    server_name = Text(
        "localhost",
        help="This machine's name in the cluster; GPUSHARE_SERVER_NAME by default, without it the host name.",
    )
    default_gpus = Number(
        0.1,
        help="""
        What a kernel gets that asks for nothing: 0 no GPU; below 1 that share of one device is guaranteed and may burst
        to all of it; a whole number n: n devices, lent to others while idle.
        """,
    )
    default_exclusive = Switch(
        False, help="Whether a kernel that asks for nothing has its device to itself while it holds it."
    )
    when_full = Choice(
        ("wait", "cpu", "fail"),
        "wait",
        help="""
        What becomes of a start that needs whole devices when none is free: `wait` up to `start_wait_s`, then start
        without a GPU and keep the place in line; `cpu` at once; `fail` with a clear message.
        """,
    )
    start_wait_s = Number(10, most=600, help="Seconds such a start may wait.")
    max_devices_per_user = Number(
        0, whole=True, help="Devices a user may hold over all of their servers and sessions; 0: no cap."
    )
    simulated_user = Text(
        "", help="Owner of this server's sessions, for demonstrations; only with `devices = 'simulated'`."
    )
    sample_interval_s = Number(1.0, least=0.1, most=60, help="Seconds between two readings of NVML.")
    lease_ttl_s = Number(
        15,
        least=1,
        help="Seconds without a sign of life from its server after which a lease ends, once its processes are gone.",
    )
    park_many = Switch(
        False,
        help="""
        Whether sessions of several processes or several GPUs are parked as well, on real GPUs. Where their processes
        share GPU memory (NCCL, CUDA IPC) what was parked may not come back, and that cannot be seen beforehand.
        """,
    )
    sharing = Choice(
        ("timeslice", "mps", "exclusive"),
        "timeslice",
        help="""
        How GPUs are shared by those who compute at once: `timeslice` in turns, the only mode in which they can be
        parked; `mps` at the same time, under a ceiling each, and one user's fault ends everybody's work there;
        `exclusive` not at all. MIG instances are used as they are.
        """,
    )
    sharing_of = Table(
        help="""
        Other modes for some GPUs, by UUID (or its beginning) or part of the model's name:
        `{"A100": "mps", "GPU-5fd1": "exclusive"}`.
        """
    )
    gate_check = Text(
        "",
        help="""
        The JSON file that `python -m tests.gpu` wrote on this machine. Where it measured that locking processes is
        cheap on this GPU with this driver, the time of time-sliced devices is divided by shares; else the driver
        divides it evenly, and who computes when is steered at cells' starts alone.
        """,
    )
    mps_folder = Text(
        "",
        help="""
        Where the pipes and logs of MPS servers lie, a short path. Empty: `/run/gpushare/mps` for root, whose servers
        serve everybody; else a folder in the user's runtime folder.
        """,
    )
    mps_burst = Number(
        2.0,
        least=1,
        help="""
        Under MPS a kernel can use at most its guarantee times this, and the whole GPU at most. Fixed at its start.
        """,
    )
    mps_memory_limit = Switch(
        False,
        help="""
        Under MPS, whether the memory a kernel asks for also limits what it can allocate. For each of its processes, and
        fixed at its start: more memory needs a restart then.
        """,
    )
    lock_dir = Text(
        help="""
        Machine-wide folder whose files say which broker has which device; GPUSHARE_LOCK_DIR by default. Empty: the
        machine's usual place. Every broker of a machine must use the same.
        """
    )

    @default("server_name")
    def _host_name(self) -> str:
        return os.environ.get("GPUSHARE_SERVER_NAME") or socket.gethostname() or "localhost"

    @property
    def names_its_server(self) -> bool:
        """Whether `server_name` was chosen, not taken from the host."""
        return "server_name" in self.config.GPUShare or bool(os.environ.get("GPUSHARE_SERVER_NAME"))

    @default("broker_url")
    def _broker_of_environment(self) -> str:
        return os.environ.get("GPUSHARE_BROKER_URL", "")

    @default("lock_dir")
    def _lock_dir_of_environment(self) -> str:
        return os.environ.get("GPUSHARE_LOCK_DIR", "")

    @validate("simulated_inventory")
    def _inventory_is_known(self, proposal: Bunch) -> str:
        value = proposal.value
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*x\S.*", value) and not Path(value).is_file():
            allowed = "it must be <servers>x<devices>x<model>, such as 1x2xA100, or the path of a JSON file"
            _unusable(proposal.trait, self, value, allowed)
        return value

    @validate("sharing_of")
    def _modes_are_known(self, proposal: Bunch) -> dict[str, str]:
        for device, mode in _as(proposal, dict[str, Literal["timeslice", "mps", "exclusive"]]).items():
            if not device.strip():
                allowed = f"{mode!r} must be for a UUID or part of a model's name"
                _unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value

    @validate("broker_url", "ledger_url", "bus_url")
    def _url_is_known(self, proposal: Bunch) -> str:
        form, allowed = {
            "broker_url": (rf"{_HTTP}(,{_HTTP})*|unix:///\S+", "it must be empty, http(s)://…, or unix:///path"),
            "ledger_url": (r"[a-z0-9_+]+://\S*", "it must be empty, sqlite:////path, or another SQLAlchemy URL"),
            "bus_url": (rf"{_NATS}(,{_NATS})*", "it must be empty, nats://host:4222 or tls://host:4222"),
        }[proposal.trait.name]
        if proposal.value and not re.fullmatch(form, proposal.value):
            shown = re.sub(r"://[^@/]*@", "://…@", proposal.value)  # a password does not belong in a log
            _unusable(proposal.trait, self, shown, allowed)
        return proposal.value

    @validate("server_name")
    def _name_is_a_word(self, proposal: Bunch) -> str:
        if not re.fullmatch(r"[^\s/]{1,253}", proposal.value):
            _unusable(proposal.trait, self, proposal.value, "it must be a name without spaces and slashes")
        return proposal.value

    @validate("default_gpus")
    def _gpus_can_be_given(self, proposal: Bunch) -> float:
        try:
            model.checked(model.Demand(gpus=proposal.value))
        except BadDemand:
            allowed = "allowed are 0, a fraction below 1, or a whole number"
            _unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value

    @validate("simulated_user")
    def _only_simulated(self, proposal: Bunch) -> str:
        if proposal.value and self.devices != "simulated":
            allowed = "it is only for devices = 'simulated': a real session's owner is who started the server"
            _unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value


class _Period(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    """An entry of `Policy.schedule`. One whose end is not after its start goes past midnight."""

    start: Annotated[str, msgspec.Meta(pattern=_TIME)]
    end: Annotated[str, msgspec.Meta(pattern=_TIME)]
    weights: dict[str, float]
    days: str = "mon-sun"

    def holds(self, when: datetime) -> bool:
        now, today = f"{when:%H:%M}", when.weekday()
        if self.start < self.end:
            return self.start <= now < self.end and today in _days(self.days)
        began = today if now >= self.start else (today - 1) % 7
        return (now >= self.start or now < self.end) and began in _days(self.days)


class _Group(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `Policy.groups`; guarantee and cap in devices."""

    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    members: list[str] = []
    guarantee: Annotated[float, msgspec.Meta(ge=0)] | None = None
    cap: Annotated[float, msgspec.Meta(ge=0)] | None = None
    servers: list[str] | None = None


class _Copies(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `Policy.data` that tells how much there is to move."""

    servers: list[str]
    size: int | str | None = None


class _Link(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `Policy.links`."""

    gb_s: Annotated[float, msgspec.Meta(gt=0)]
    latency_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    between: tuple[str, str] | None = None


def _days(text: str) -> set[int]:
    """Week days, Monday 0, of ``mon-fri`` or ``sat,sun``. Raises ValueError."""
    days: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        found = _DAYS.fullmatch(part)
        if found is None:
            raise ValueError(text)
        first, last = DAYS.index(found[1]), DAYS.index(found[2] or found[1])
        days |= {day % 7 for day in range(first, last + 1 if last >= first else last + 8)}
    return days


class Policy(Configurable):
    """When GPUs are lent, stretched and taken back. What a broker elsewhere decides follows that broker's Policy."""

    _learned: Learned | None = None

    idle_after_s = Number(
        None,
        help="""
        Seconds without computing after which a device is taken back (unbound, parked) when somebody waits for it.
        None: the break-even of that session's own pauses and what parking it costs.
        """,
    )
    warn_before_s = Number(5, help="Seconds of notice before parking; its owner can veto it by a pin.")
    stop_after_s = Number(3600, help="As `idle_after_s`, for stopping a kernel.")
    stop_warn_s = Number(300, help="Seconds of notice before a kernel is stopped.")
    reclaim = Choice(
        ("contended", "always", "never"),
        "contended",
        help="""
        When idle devices are taken back: `contended` only while somebody waits, `always` also without (for clouds that
        scale down), `never`.
        """,
    )
    stop_idle_kernels = Switch(
        False, help="Whether the last rung of the ladder is in use: stopping a kernel, which loses its state."
    )
    off_lease = Choice(
        ("charge", "warn", "stop"),
        "charge",
        help="""
        What becomes of a user's process on a device their session was not given: `charge` it, and show it. `warn`
        (also tell them) and `stop` (end it) are refused by this version.
        """,
    )
    busy_limit_s = Number(
        0,
        help="""
        Seconds one cell may run without ever using the GPU it was given; then it counts as idle: its GPU can be taken
        when somebody waits, and is given back when there is room. 0: no limit.
        """,
    )
    expand_above = Number(0.9, most=1, help="A session that uses more of its share gets more, if there is room.")
    shrink_below = Number(0.3, most=1, help="One that uses less of it gives some up, if somebody waits.")
    window_s = Number(30, least=1, help="Seconds over which the two are observed.")
    half_life_s = Number(86400, least=1, help="Seconds after which past usage counts half in fair share.")
    weights = Table(
        help="""
        How much each objective counts: `utilization`, `completion`, `fairness`, `energy`; each at least 0. Those not
        named keep their default.
        """
    )
    schedule = Entries(
        help="""
        Other weights at certain times, the first match counts:
        `[{"from": "09:00", "to": "18:00", "days": "mon-fri", "weights": {"completion": 2.0}}]`, in local time.
        """
    )
    learned = Text(
        "",
        help="""
        A function that chooses the weights at each decision, as `module:function`: it takes what the cluster is like
        (`jupyter_gpushare.core.objectives.Features`) and returns those it wants changed, such as `{"energy": 2.0}`.
        """,
    )
    data = Table(
        help="""
        Where data lies, for transfer cost: `{"/datasets/imagenet": ["alpha", "beta"]}`, or with its size
        `{"/datasets/imagenet": {"servers": ["alpha", "beta"], "size": "150GB"}}`.
        """
    )
    links = Entries(
        help="""
        How servers are linked: `[{"between": ["alpha", "beta"], "gb_s": 12.5, "latency_s": 0.0001}]`.
        One without `between` holds for every two that no other names; what none names is unknown.
        """
    )
    groups = Table(
        help="""
        Groups by name: `{"vision": {"weight": 2.0, "members": ["alice"]}}`: the weight is the group's part in fair
        share, however many members it has; who is in several belongs to the first, users of none form one of weight 1.
        A group's `guarantee`, `cap` (in devices) and `servers` are refused by this version.
        """
    )

    @default("weights")
    def _default_weights(self) -> dict[str, float]:
        return {name: getattr(policy.Weights(), name) for name in _OBJECTIVES}

    @validate("weights")
    def _weights_can_be_used(self, proposal: Bunch) -> dict[str, float]:
        weights = _as(proposal, dict[str, float], strict=False)  # a command line has only strings
        return self._checked(proposal, self._default_weights() | weights)

    def _checked(self, proposal: Bunch, weights: dict[str, float]) -> dict[str, float]:
        try:
            policy.Weights(**weights)
        except (TypeError, BadDemand):
            allowed = f"it may name {', '.join(_OBJECTIVES)}, each at least 0 and one greater than 0"
            _unusable(proposal.trait, self, proposal.value, allowed)
        return weights

    @validate("schedule")
    def _schedule_can_be_kept(self, proposal: Bunch) -> list[dict[str, Any]]:
        for period in _as(proposal, list[_Period]):
            self._checked(proposal, self.weights | period.weights)
            try:
                _days(period.days)
            except ValueError:
                _unusable(proposal.trait, self, proposal.value, "days must be such as 'mon-fri' or 'sat,sun'")
        return proposal.value

    @validate("learned")
    def _function_is_there(self, proposal: Bunch) -> str:
        try:
            self._learned = Learned(proposal.value) if proposal.value else None
        except BadDemand as error:
            _unusable(proposal.trait, self, proposal.value, str(error))
        return proposal.value

    @validate("data")
    def _data_has_servers(self, proposal: Bunch) -> dict[str, list[str]]:
        for entry in _as(proposal, dict[str, list[str] | _Copies]).values():
            try:
                parse_bytes(entry.size or 0, "size") if isinstance(entry, _Copies) else None
            except BadDemand as error:
                _unusable(proposal.trait, self, proposal.value, str(error))
        return proposal.value

    @validate("links")
    def _links_join_two(self, proposal: Bunch) -> list[dict[str, Any]]:
        for link in _as(proposal, list[_Link]):
            if link.between is not None and link.between[0] == link.between[1]:
                _unusable(proposal.trait, self, proposal.value, "between must name two servers")
        return proposal.value

    @validate("groups")
    def _groups_can_be_used(self, proposal: Bunch) -> dict[str, dict[str, Any]]:
        for name, group in _as(proposal, dict[str, _Group]).items():
            if (group.guarantee, group.cap, group.servers) != (None, None, None):
                allowed = f"{name} may have weight and members; this version knows no guarantee, cap or servers yet"
                _unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value

    @validate("off_lease")
    def _is_carried_out(self, proposal: Bunch) -> object:
        """A setting that nothing follows yet must not seem to be in force."""
        if proposal.value != proposal.trait.default_value:
            allowed = f"this version carries out {proposal.trait.default_value!r} only"
            _unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value

    @validate("expand_above", "shrink_below")
    def _thresholds_apart(self, proposal: Bunch) -> float:
        if self.shrink_below >= self.expand_above:
            allowed = f"shrink_below ({self.shrink_below:g}) must be less than expand_above ({self.expand_above:g})"
            _unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value

    def frozen(self, when: datetime | None = None) -> policy.Policy:
        """The numbers as the core takes them, with the weights in force at that local time."""
        named = self.weights
        if when is not None:
            periods = msgspec.convert(self.schedule, list[_Period])
            named = named | next((period.weights for period in periods if period.holds(when)), {})
        weights = policy.Weights(**named)
        return policy.Policy(
            idle_after_s=self.idle_after_s,
            warn_before_s=self.warn_before_s,
            stop_after_s=self.stop_after_s,
            stop_warn_s=self.stop_warn_s,
            reclaim=self.reclaim,
            stop_idle_kernels=self.stop_idle_kernels,
            busy_limit_s=float(self.busy_limit_s),
            expand_above=self.expand_above,
            shrink_below=self.shrink_below,
            window_s=self.window_s,
            half_life_s=self.half_life_s,
            weights=weights,
            choose=None if self._learned is None else self._learned.over(weights),
        )

    def user_weights(self) -> dict[str, float]:
        """Each named user's part of a device they share: their group's."""
        weights = self.group_weights()
        return {user: weights[group] for user, group in self.user_groups().items()}

    def group_weights(self) -> dict[str, float]:
        """Each group's part of the cluster relative to others'."""
        return {name: group.weight for name, group in msgspec.convert(self.groups, dict[str, _Group]).items()}

    def data_copies(self) -> dict[str, tuple[tuple[str, ...], int | None]]:
        """By path prefix, the servers with a copy, and its bytes where they are told."""
        found = {}
        for path, entry in msgspec.convert(self.data, dict[str, list[str] | _Copies]).items():
            servers, size = (entry, None) if isinstance(entry, list) else (entry.servers, entry.size)
            found[path] = (tuple(servers), None if size is None else parse_bytes(size, "size"))
        return found

    def server_links(self) -> list[_Link]:
        """The links between servers."""
        return msgspec.convert(self.links, list[_Link])

    def user_groups(self) -> dict[str, str]:
        """Each named user's group: the first that names them."""
        groups: dict[str, str] = {}
        for name, group in msgspec.convert(self.groups, dict[str, _Group]).items():
            for member in group.members:
                groups.setdefault(member, name)
        return groups
