"""Shares: each device is divided among the sessions that burst there; idle holders keep in name what is left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model import Expand, Shrink
from . import elastic, shares
from .admit import candidates
from .draft import Draft
from .policy import Policy
from .room import sum_at
from .state import Bools, Floats, Ints, Placements

CHANGE = 0.005  # what differs by less is not worth a message


def lend(draft: Draft, now: float, policy: Policy) -> Draft:
    """Decides every share and elastic target that changes; fills in the shares of what was placed in this draft."""
    placements, rows = draft.placements()
    placements = replace(
        placements,
        share=np.where(np.isnan(placements.share), 0.0, placements.share),
        share_since=np.where(np.isnan(placements.share_since), now, placements.share_since),
    )
    sessions, bursting = draft.state.sessions, draft.bursting
    leased = np.flatnonzero(placements.lease)
    targets = placements.target.copy()
    contended = _contended(draft, placements)
    targets[leased] = elastic.targets(placements, sessions, bursting, contended, now, policy)[leased]
    entitled = _entitled(draft, placements, targets)
    _fill_in(draft, placements, entitled)
    _changes(draft, placements, leased, entitled, targets)
    draft.share[rows], draft.target[rows] = entitled, targets
    return draft


def _entitled(draft: Draft, placements: Placements, targets: Floats) -> Floats:
    """(P,) the share of each placement: none without a lease."""
    result = np.zeros(placements.session.size)
    rows = np.flatnonzero(placements.lease)
    session, device = placements.session[rows], placements.device[rows]
    asks = draft.state.sessions
    result[rows] = shares.fill_devices(
        device,
        np.where(placements.borrowed[rows], 0.0, asks.guarantee[session]),
        targets[rows],
        draft.state.users.weight[asks.user[session]],
        draft.bursting[session],
        len(draft.state.devices.uuid),
    )
    return result


def _contended(draft: Draft, placements: Placements) -> Bools:
    """(P,) somebody waits for this device, or those who compute there could use more than all of it."""
    size = len(draft.state.devices.uuid)
    computing = placements.lease & draft.bursting[placements.session]
    wanted = sum_at(placements.device, np.where(computing, placements.target, 0.0), size)
    contended: Bools = wanted > 1.0 + CHANGE
    for session in draft.blocked:
        contended[candidates(draft, session)] = True
    return contended[placements.device]


def _fill_in(draft: Draft, placements: Placements, entitled: Floats) -> None:
    """Writes the shares of new leases into their decisions: the least over their devices."""
    for index, session in draft.granted.items():
        mine = np.flatnonzero(placements.session == session)
        share = float(entitled[mine].min())
        placements.share[mine] = share
        decision = draft.decisions[index]
        fields = {name: getattr(decision, name) for name in decision.__struct_fields__}
        draft.decisions[index] = type(decision)(**fields | {"share": share})


def _changes(draft: Draft, placements: Placements, leased: Ints, entitled: Floats, targets: Floats) -> None:
    """An Expand or Shrink for each lease whose share or target changes."""
    before = placements.target[leased]
    share, target = entitled[leased], targets[leased]
    by_target = np.abs(target - before) > CHANGE  # not where it had none
    rises = share > placements.share[leased]
    changed = by_target | (np.abs(share - placements.share[leased]) > CHANGE)
    names, uuids = draft.state.sessions.id, draft.state.devices.uuid
    columns = (
        placements.session[leased], placements.device[leased], share, target, by_target,
        np.where(by_target, target > before, rises),
    )  # fmt: skip
    # Plain numbers at once: thousands change together, and reading arrays one by one would take most of a decision.
    for session, device, part, aim, aims, grows in zip(*(column[changed].tolist() for column in columns), strict=True):
        why = "neighbours" if not aims else "busy" if grows else "quiet"
        act = Expand if grows else Shrink
        draft.decisions.append(act(session=names[session], why=why, device=uuids[device], share=part, target=aim))
