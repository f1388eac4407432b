"""Small bodies and answers of the route table that belong to no one verb."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..model import Alternative, SessionState, Term


class Acted(msgspec.Struct, frozen=True, kw_only=True):
    """The state a session goes to."""

    state: SessionState
    message: str = ""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a session is where it is."""

    terms: tuple[Term, ...]
    alternatives: tuple[Alternative, ...]
    decided: tuple[dict[str, Any], ...]  # what happened to it, newest first, with the seconds since


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    eta_s: float | None


class BurstPhase(msgspec.Struct, frozen=True, kw_only=True):
    phase: Literal["start", "end"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    fault: Literal["lost", "hot", "unreadable", "slow", "none"]


class Empty(msgspec.Struct, frozen=True, kw_only=True):
    """No fields."""
