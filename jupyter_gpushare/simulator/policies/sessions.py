"""The policies that sessions can be run under, by name."""

from __future__ import annotations

from ...core.policy import Policy
from ..sessions import SessionPolicy
from .interactive import BindOnCell, Culler, Static, TimeSlice
from .ours_sessions import Ours

_ALL: tuple[SessionPolicy, ...] = (
    Ours(),
    Ours(Policy(reclaim="always"), name="gpushare-always"),
    Static(),
    Static(name="static-first-to-last", from_first_to_last=True),
    Static(name="first-fit", whole=False),
    Static(name="round-robin", whole=False, spread=True),
    Culler(),
    BindOnCell(),
    TimeSlice(),
)
POLICIES: dict[str, SessionPolicy] = {policy.name: policy for policy in _ALL}
