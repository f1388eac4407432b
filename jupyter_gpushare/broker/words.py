"""The sentences people read about a session: the same words in the panel, in `%gpu` and in toasts.

Pattern: what is true, what it means for the work, what can be done. Never names anybody else.
"""

from __future__ import annotations

from ..model import SessionState
from ..units import about, format_bytes, place, plural
from . import mps
from .records import Cluster, Session
from .status import Next

RECLAIM = {
    "park": "This GPU is idle and will be parked in {clock}. Your variables stay.",
    "stop": "This kernel is idle and will be stopped in {clock}. Its variables are lost then.",
    "trim": "Memory that is only cached will be given back in {clock}. Your variables stay.",
    "unbind": "This GPU is idle and will be given on in {clock}. Nothing of yours is on it.",
}


def clock(seconds: float) -> str:
    """A running countdown: ``0:24``."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02d}"


def gpu(cluster: Cluster, uuid: str) -> str:
    """``GPU 2`` on a lone server, ``GPU 2, alpha`` among several; the uuid's head before its node has spoken."""
    record = cluster.devices.get(uuid)
    if record is None:
        return f"GPU {uuid[:12]}"
    name = f"GPU {record.seen.index}"
    return f"{name}, {record.server}" if len(cluster.servers) > 1 else name


def gpus(cluster: Cluster, uuids: tuple[str, ...]) -> str:
    return " and ".join(gpu(cluster, uuid) for uuid in uuids)


def asked(session: Session) -> str:
    """``2 GPUs, any A100``: what a session waits for."""
    demand = session.demand
    amount = plural(demand.devices, "GPU") if demand.gpus >= 1 else "a GPU"
    return f"{amount}, any {demand.constraints.model}" if demand.constraints.model else amount


def over_limit(asked_for: float, limit: int, kept: int) -> str:
    said = f"You asked for {plural(int(-(-asked_for // 1)), 'GPU')}; your limit is {limit}."
    return f"{said} You keep the {kept} you have." if kept else said


def needs_restart(what: str) -> str:
    return f"Needs a kernel restart. A running kernel cannot get {what}. Its variables would be lost."


NO_GPU_IN_TIME = "Started without a GPU. None was free in time. Your place in line is kept."
TAKE_NEEDS_RESTART = " Taking it when it is free needs a kernel restart."
MORE = 1.1  # times the memory that was asked for, from which it is said
TAKE_BY_ITSELF = " It is used as soon as it is free."


def reclaim(session: Session, now: float) -> str | None:
    """The notice before a rung of the ladder; None when none runs."""
    if session.warned is None or session.warned_until is None:
        return None
    text = RECLAIM[session.warned].format(clock=clock(session.warned_until - now))
    return f"Someone is waiting. {text}"


def message(
    cluster: Cluster, session: Session, state: SessionState, now: float, position: int | None, eta_s: float | None
) -> str:
    """What is true for a session now, in one or two sentences."""
    if session.harmed:
        return session.harmed
    if session.refused:
        return f"Not granted. {session.refused}"
    if (gone := mps.cut_off(cluster, session, gpus(cluster, session.mask))) is not None:
        return gone
    if session.notice and now < session.notice_until:
        return session.notice
    where = gpus(cluster, session.devices)
    ordinary = {
        "bound": f"Ready on {where}. Nothing of yours is on it yet.",
        "active": f"Computing on {where}.",
        "idle": f"Idle on {where}. It stays while nobody waits.",
        "parking": "Being parked. Its GPU memory moves to host memory; your variables stay.",
        "parked": f"Parked. {format_bytes(session.parked_bytes)} of GPU memory rest in host memory."
        " Run a cell and they come back.",
        "resuming": f"Coming back. {format_bytes(session.held.moved_bytes if session.held else None)} of"
        f" {format_bytes(session.parked_bytes)}. Your cell starts right after.",
        "waiting": f"Waiting for {asked(session)}, {place(position)}, {about(eta_s)}.",
        "none": _without(cluster),
        "lost": f"{where} stopped answering. Its memory is lost; the kernel and what it holds in RAM live on.",
        "dead": "Ended. Its GPU was given back.",
    }
    if state in ("active", "idle") and session.leased and (stray := _stray(cluster, session)) is not None:
        return stray
    if state == "bound" and session.context:
        return f"Let go of {where}. What lies in its memory stays until somebody needs the room."
    if state == "parked" and session.waiting_since is not None:
        return f"Coming back is {place(position)}, {about(eta_s)}: the memory must be free first. Nothing is lost."
    if state == "waiting" and session.gated:
        return f"Waiting for a GPU, {place(position)}, {about(eta_s)}. The cell starts by itself."
    if state == "active" and not session.owns:
        return f"Computing on {where} on borrowed time: it is full, and its holders may want it back."
    if state == "idle" and session.over_since is not None and session.warned_until is None:
        return f"Its cell has long run without using {where}, so it counts as idle. It stays while nobody waits."
    if state == "idle":
        pinned = session.pinned_until is not None and session.pinned_until > now
        if pinned:
            return f"Kept on {where}. Nothing is parked before the time you chose."
        return reclaim(session, now) or _more_than_asked(session, where) or ordinary[state]
    if state == "active":
        return _more_than_asked(session, where) or ordinary[state]
    return ordinary[state]


def _without(cluster: Cluster) -> str:
    if cluster.devices:
        return "Runs without a GPU. Ask for one at any time."
    troubled = any(server.findings for server in cluster.servers.values())
    return f"Runs without a GPU: {'none can be read just now' if troubled else 'there is none here'}."


def _more_than_asked(session: Session, where: str) -> str | None:
    """For who uses more memory than was asked for: nothing on the device keeps a session's processes to it together."""
    asked_for = session.demand.memory
    used = max((placement.memory_used or 0 for placement in session.placements.values()), default=0)
    if asked_for is None or used <= MORE * asked_for:
        return None
    return (
        f"Its processes have {format_bytes(used)} of memory on {where}, {format_bytes(asked_for)} were asked for:"
        " others may run out of it."
    )


def _stray(cluster: Cluster, session: Session) -> str | None:
    """For who holds a device: that somebody else computes there without a share of it."""
    for name in cluster.off_lease:
        other = cluster.sessions.get(name)
        shared = () if other is None or other is session else set(other.strays()) & set(session.placements)
        if shared:
            where = gpus(cluster, tuple(sorted(shared)))
            return f"Someone computes on {where} without a share of it. It is charged to them; yours may be slower."
    return None


def stray(cluster: Cluster, uuids: tuple[str, ...], left_s: float | None) -> str:
    """For who uses devices that they were not given; `left_s`: until what does is ended, None: it is not."""
    text = f"Your kernel computes on {gpus(cluster, uuids)}, which it was not given. It is charged to you."
    if left_s is None:
        return f"{text} Ask for more with %gpu request."
    if left_s <= 0:
        return f"Your process on {gpus(cluster, uuids)}, which your kernel was not given, is ended."
    return f"{text} Your process there is ended in {round(left_s)} s."


def next_of(
    session: Session, state: SessionState, now: float, eta_s: float | None, restart_ready: bool = False
) -> Next:
    """What comes next, by itself or by the person's hand."""
    if state != "dead" and session.stop_asked is not None:
        return Next(code="stopping", text="The kernel is being stopped.")
    if restart_ready:
        return Next(code="restart_ready", text="Reserved. Restart the kernel to use it.")
    if session.refused:
        return Next(code="refused", text="You keep what you have. Ask for less, or for another kind.")
    if state in ("idle", "active") and session.warned is not None and session.warned_until is not None:
        left = max(0.0, session.warned_until - now)
        return Next(code=session.warned, text="Run a cell or keep it, and it stays.", in_s=left)
    if state == "idle" and session.pinned_until is not None and session.pinned_until > now:
        return Next(code="pinned", text="Nothing is parked before then.", in_s=session.pinned_until - now)
    if state == "waiting" and not session.gated and session.demand.whole and session.pid is not None:
        return Next(code="restart", text="Taking it when it is free needs a kernel restart.", in_s=eta_s)
    ordinary = {
        "waiting": Next(code="start", text="Starts by itself; your cell waits.", in_s=eta_s),
        "bound": Next(code="cell", text="Used as soon as a cell needs it."),
        "active": Next(code="grow", text="Grows when others on this GPU pause."),
        "idle": Next(code="stay", text="Stays while nobody waits."),
        "parking": Next(code="parked", text="Run a cell and it comes back."),
        "parked": Next(code="cell", text="Run a cell and it comes back."),
        "resuming": Next(code="resumed", text="Your cell starts as soon as the memory is back."),
        "none": Next(code="ask", text="Ask for a GPU at any time."),
        "lost": Next(code="restart", text="Restart on another GPU, or wait: it may come back."),
        "dead": Next(code="leave", text="This row leaves after 10 minutes."),
    }
    return ordinary[state]


def put_aside(session: str) -> str:
    return (
        f"Nothing can be decided on session {session} because of an error of the broker's own; its log has it."
        " It keeps what it has and the others go on. Restarting its kernel may mend it."
    )


def degraded(code: str, where: str, message: str) -> str:
    """One strip: what is away and what that means."""
    if code == "ledger":
        return "Usage is not being recorded just now: the database does not answer. Sharing goes on as usual."
    if code == "nvml":
        return (
            f"GPU readings stopped on {where}: {message} Numbers are from before; nothing is granted or taken on them."
        )
    return f"{where}: {message}" if where else message
