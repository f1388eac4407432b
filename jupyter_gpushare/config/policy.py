"""`c.Policy`: what steers decisions, and the frozen numbers that the core takes."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

import msgspec
from traitlets import Bunch, default, validate
from traitlets.config import Configurable

from ..core import policy
from ..errors import BadDemand
from ..learned import Learned
from ..units import parse_bytes
from .traits import Choice, Entries, Number, Switch, Table, Text, as_type, unusable

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = r"^([01]\d|2[0-3]):[0-5]\d$"
_DAYS = re.compile(rf"({'|'.join(DAYS)})(?:-({'|'.join(DAYS)}))?")
_OBJECTIVES = tuple(policy.Weights.__dataclass_fields__)


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
        What becomes of a user's process on a device their session was not given: `charge` it, and show it; `warn`:
        also tell them; `stop`: also end it, `stop_warn_s` after they were told.
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
        weights = as_type(proposal, dict[str, float], strict=False)  # a command line has only strings
        return self._checked(proposal, self._default_weights() | weights)

    def _checked(self, proposal: Bunch, weights: dict[str, float]) -> dict[str, float]:
        try:
            policy.Weights(**weights)
        except (TypeError, BadDemand):
            allowed = f"it may name {', '.join(_OBJECTIVES)}, each at least 0 and one greater than 0"
            unusable(proposal.trait, self, proposal.value, allowed)
        return weights

    @validate("schedule")
    def _schedule_can_be_kept(self, proposal: Bunch) -> list[dict[str, Any]]:
        for period in as_type(proposal, list[_Period]):
            self._checked(proposal, self.weights | period.weights)
            try:
                _days(period.days)
            except ValueError:
                unusable(proposal.trait, self, proposal.value, "days must be such as 'mon-fri' or 'sat,sun'")
        return proposal.value

    @validate("learned")
    def _function_is_there(self, proposal: Bunch) -> str:
        try:
            self._learned = Learned(proposal.value) if proposal.value else None
        except BadDemand as error:
            unusable(proposal.trait, self, proposal.value, str(error))
        return proposal.value

    @validate("data")
    def _data_has_servers(self, proposal: Bunch) -> dict[str, list[str]]:
        for entry in as_type(proposal, dict[str, list[str] | _Copies]).values():
            try:
                parse_bytes(entry.size or 0, "size") if isinstance(entry, _Copies) else None
            except BadDemand as error:
                unusable(proposal.trait, self, proposal.value, str(error))
        return proposal.value

    @validate("links")
    def _links_join_two(self, proposal: Bunch) -> list[dict[str, Any]]:
        for link in as_type(proposal, list[_Link]):
            if link.between is not None and link.between[0] == link.between[1]:
                unusable(proposal.trait, self, proposal.value, "between must name two servers")
        return proposal.value

    @validate("groups")
    def _groups_can_be_used(self, proposal: Bunch) -> dict[str, dict[str, Any]]:
        for name, group in as_type(proposal, dict[str, _Group]).items():
            if (group.guarantee, group.cap, group.servers) != (None, None, None):
                allowed = f"{name} may have weight and members; this version knows no guarantee, cap or servers yet"
                unusable(proposal.trait, self, proposal.value, allowed)
        return proposal.value

    @validate("expand_above", "shrink_below")
    def _thresholds_apart(self, proposal: Bunch) -> float:
        if self.shrink_below >= self.expand_above:
            allowed = f"shrink_below ({self.shrink_below:g}) must be less than expand_above ({self.expand_above:g})"
            unusable(proposal.trait, self, proposal.value, allowed)
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
