"""The plan that the stages of `decide` share: the state as it will be once the decisions so far are carried out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np

from ..model import Decision, Place, ResumeSession
from .outlook import Outlook
from .room import Room, claim, least_of, need_of, restoring, room_of, where_known
from .state import PARKED, RESUMING, Bools, Floats, Ints, Placements, State

FREE = -1  # `session` of a row that holds no placement


@dataclass(slots=True, eq=False)
class Draft:
    """A working copy of placements and sessions, changed in place by the stages, one after another.

    Attributes
    ----------
    session, device, lease, borrowed, share, target, share_since, use, memory_used, steady : as in Placements, with
        rows to spare; `session` is FREE where there is none
    bursting, parked : (S,) as in the state, then as decided
    outlook, room : what each device is like, and what it has left
    ahead, ahead_lent, ahead_memory : (D,) share, lent time and bytes kept for who is next in line and could not be
        admitted
    blocked : sessions that wait and could not be admitted, in order
    over_cap : how many devices each of these sessions would take its user over the cap
    kept : for whom `ahead` is kept, and on which devices
    decisions : what was decided so far
    granted : the row of the session behind each decision (its index) that grants a lease
    ahead_in : (D,) seconds until what is kept there is needed; 0: now, or nobody knows
    others : how long bursts typically take (`remaining.typical`), None until it is asked
    lasts : how long each of these sessions that wait is taken to compute, in seconds (backfill.py)
    moved : sessions that move to other devices; nothing else is decided on them
    found : the rows of sessions whose placements have not changed since they were looked for
    """

    state: State
    session: Ints
    device: Ints
    lease: Bools
    borrowed: Bools
    share: Floats
    target: Floats
    share_since: Floats
    use: Floats
    memory_used: Floats
    steady: Floats
    bursting: Bools
    parked: Bools
    outlook: Outlook
    room: Room
    ahead: Floats
    ahead_lent: Floats
    ahead_memory: Floats
    ahead_in: Floats
    blocked: list[int] = field(default_factory=list)
    over_cap: dict[int, float] = field(default_factory=dict)
    kept: dict[int, Ints] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    granted: dict[int, int] = field(default_factory=dict)
    others: Floats | None = None
    lasts: dict[int, float] = field(default_factory=dict)
    moved: list[int] = field(default_factory=list)
    found: dict[int, Ints] = field(default_factory=dict)

    def rows(self, session: int) -> Ints:
        """The rows of a session's placements."""
        rows = self.found.get(session)
        if rows is None:
            rows = self.found[session] = np.flatnonzero(self.session == session)
        return rows

    def devices(self, session: int) -> Ints:
        """Rows of the devices it is placed on."""
        return self.device[self.rows(session)]

    def lift(self, session: int) -> None:
        """Takes what a session holds out of the room, so that it is not in its own way; `settle` puts it back."""
        self._count(session, -1.0)

    def settle(self, session: int) -> None:
        """Counts what a session holds now."""
        self._count(session, 1.0)

    def put(self, session: int, devices: Ints, *, lease: bool, borrowed: bool = False) -> None:
        """Places a lifted session; what it had elsewhere ends. Its elastic target survives on the same device."""
        guarantee, limit = self.state.sessions.guarantee[session], self.state.sessions.limit[session]
        known = self.state.sessions.confidence[session] > 0
        had = {int(self.device[row]): int(row) for row in self.rows(session)}
        spare = [row for device, row in had.items() if device not in devices]
        for device in devices.tolist():
            row = had.get(device)
            if row is None:
                row = spare.pop() if spare else self._spare_row()
                self.session[row], self.device[row] = session, device
                self.found.pop(session, None)
                self.target[row] = self.share[row] = self.use[row] = self.memory_used[row] = self.steady[row] = np.nan
            if lease:
                target = self.target[row]
                keeps = known and not np.isnan(target)
                self.target[row] = min(max(target, guarantee), limit) if keeps else guarantee
            self.lease[row], self.borrowed[row] = lease, borrowed
        for row in spare:
            self._clear(row)

    def drop(self, session: int) -> None:
        """Ends all placements of a lifted session."""
        for row in self.rows(session).tolist():
            self._clear(row)

    def grant(self, session: int, decision: Place | ResumeSession) -> None:
        """Decides where a session is; the share of a lease is filled in when all shares are known."""
        if not isinstance(decision, Place) or decision.lease:
            self.granted[len(self.decisions)] = session
        self.decisions.append(decision)

    def keep(self, session: int, devices: Ints, sign: float = 1.0) -> None:
        """Keeps what a waiting session will need on these devices from those behind it; sign -1 gives it free."""
        need = need_of(self.state, session, self.room.capacity[devices])
        self.ahead[devices] += sign * self.state.sessions.guarantee[session]
        self.ahead_lent[devices] += sign * least_of(self.state, session)
        self.ahead_memory[devices] += sign * np.nan_to_num(need)

    def placements(self) -> tuple[Placements, Ints]:
        """The placements as decided, and the draft row of each."""
        rows = np.flatnonzero(self.session != FREE)
        return Placements(
            session=self.session[rows],
            device=self.device[rows],
            lease=self.lease[rows],
            borrowed=self.borrowed[rows],
            share=self.share[rows],
            target=self.target[rows],
            share_since=self.share_since[rows],
            use=self.use[rows],
            memory_used=self.memory_used[rows],
            steady=self.steady[rows],
        ), rows

    def uuids(self, devices: Ints) -> tuple[str, ...]:
        """The names behind device rows."""
        return tuple(self.state.devices.uuid[device] for device in devices.tolist())

    def _clear(self, row: int) -> None:
        self.found.pop(int(self.session[row]), None)
        self.session[row] = FREE
        self.lease[row] = self.borrowed[row] = False

    def _spare_row(self) -> int:
        free = np.flatnonzero(self.session == FREE)
        if free.size == 0:
            _grow(self)
            free = np.flatnonzero(self.session == FREE)
        return int(free[0])

    def _count(self, session: int, sign: float) -> None:
        asks, room = self.state.sessions, self.room
        guarantee = float(asks.guarantee[session])
        here = not self.parked[session]
        rows = self.rows(session)
        if self.state.hosts is not None and rows.size:  # its kernel runs there, parked or not
            server = self.state.devices.server[self.device[rows[0]]]
            room.cpus[server] -= sign * where_known(asks.cpus[session])
            room.host_memory[server] -= sign * where_known(asks.host_memory[session])
        for row in rows.tolist():
            device = int(self.device[row])
            lease = here and bool(self.lease[row])
            context = here and bool(asks.context[session])
            coming = bool(self.bursting[session]) or asks.state[session] == RESUMING
            room.expected[device] += sign * guarantee
            room.placed[device] += sign * here
            room.holders[device] += sign * (lease or context)
            room.committed[device] += sign * guarantee * (lease and not self.borrowed[row])
            room.bursting[device] += (
                sign * claim(guarantee, self.steady[row]) * (lease and bool(self.bursting[session]))
            )
            room.closed[device] += sign * (lease and bool(asks.exclusive[session]))
            if context or (lease and coming):
                need = need_of(self.state, session, room.capacity[[device]])[0]
                need = np.fmax(need, restoring(asks, np.array([session]), room.capacity[[device]])[0])
                room.memory[device] += sign * float(np.fmax(self.memory_used[row], need))


def draft_of(state: State) -> Draft:
    """A draft in which nothing is decided yet."""
    draft = glance_at(state)
    _grow(draft)
    draft.bursting = draft.bursting.copy()
    return draft


def glance_at(state: State) -> Draft:
    """A draft for reading only: its arrays are the state's own, its room can be lifted and settled."""
    held, size = state.placements, len(state.devices.uuid)
    parked = state.sessions.state == PARKED
    return Draft(
        state=state,
        session=held.session,
        device=held.device,
        lease=held.lease & ~parked[held.session],
        borrowed=held.borrowed,
        share=held.share,
        target=held.target,
        share_since=held.share_since,
        use=held.use,
        memory_used=held.memory_used,
        steady=held.steady if held.steady.size else np.full(held.session.size, np.nan),
        bursting=state.sessions.bursting,
        parked=parked,
        outlook=Outlook(state),
        room=room_of(state),
        ahead=np.zeros(size),
        ahead_lent=np.zeros(size),
        ahead_memory=np.zeros(size),
        ahead_in=np.zeros(size),
    )


def copy_of(draft: Draft) -> Draft:
    """A copy to try things on."""
    arrays = {f.name: getattr(draft, f.name).copy() for f in fields(draft) if f.type in ("Ints", "Floats", "Bools")}
    room = Room(**{f.name: getattr(draft.room, f.name).copy() for f in fields(Room)})
    kept, moved = dict(draft.kept), list(draft.moved)
    return replace(draft, **arrays, room=room, blocked=[], kept=kept, decisions=[], granted={}, moved=moved, found={})


def _grow(draft: Draft) -> None:
    """Adds rows to spare."""
    extra = max(16, draft.session.size // 8)
    no, unknown = np.zeros(extra, np.bool_), np.full(extra, np.nan)
    draft.session = np.concatenate((draft.session, np.full(extra, FREE)))
    draft.device = np.concatenate((draft.device, np.zeros(extra, np.int64)))
    for name in ("lease", "borrowed"):
        setattr(draft, name, np.concatenate((getattr(draft, name), no)))
    for name in ("share", "target", "share_since", "use", "memory_used", "steady"):
        setattr(draft, name, np.concatenate((getattr(draft, name), unknown)))
