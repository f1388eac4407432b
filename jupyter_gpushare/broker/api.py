"""The route table: everything anybody may ask of a broker, who may, with what body, and what comes back.

Doors authenticate and build a `Caller`; roles and ownership are checked here and nowhere else (rules 11 and 13).
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import BadDemand, Conflict, GPUShareError, NotAllowed, NotFound, Unavailable, WrongMethod
from ..model import (
    Admission,
    Binding,
    Caller,
    CommandResult,
    Demand,
    Inject,
    SessionSpec,
    Simulate,
)
from . import choices, eta, figures, gate, pools, readings, starts, verbs, view, wishes
from .answers import Acted, BurstPhase, Empty, Estimate, Fault, Why
from .bodies import parsed
from .port import Reply
from .reach import check_possible
from .readings import Readings
from .records import Session
from .rows import History, HistoryQuery
from .status import DeviceView, SessionView, Status

if TYPE_CHECKING:
    from .broker import Broker

LATEST_S = 253402300800.0  # the year 10000, which no calendar of Python or a database has

Role = Literal["user", "kernel", "server", "admin"]


@dataclass(frozen=True, slots=True)
class Request:
    """One call, its path taken apart and its body parsed."""

    broker: Broker
    caller: Caller
    path: dict[str, str]
    query: Mapping[str, str]
    body: Any

    @property
    def session(self) -> Session:
        """The session of the path, if the caller may speak for it. Raises NotFound, NotAllowed."""
        found = self.broker.cluster.sessions.get(self.path["id"])
        if found is None or found.reserves is not None:
            raise NotFound(f"There is no session {self.path['id']!r} here.")
        if not (view.visible(found, self.caller)):
            raise NotAllowed("This is somebody else's session.")
        return found


Answer = Callable[[Request], object | Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row. `role`: the least a caller must be; an admin may all but speak as a kernel or a server."""

    method: str
    path: str  # "sessions/{id}/pin"; {path} takes slashes
    role: Role
    function: Answer
    body: type[msgspec.Struct] = Empty
    answer: Any = None
    summary: str = ""
    status: int = 200
    internal: bool = False
    pattern: re.Pattern[str] = field(init=False, repr=False, default=re.compile(""))

    def __post_init__(self) -> None:
        pattern = re.sub(
            r"\{(\w+)\}", lambda part: f"(?P<{part[1]}>{'.+' if part[1] == 'path' else '[^/]+'})", self.path
        )
        object.__setattr__(self, "pattern", re.compile(pattern))


async def call(broker: Broker, caller: Caller, method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
    """Answers a call. Raises only errors of errors.py. What changes something by a person's will is audited."""
    if any("\0" in text for text in (path, *query.values())):
        raise BadDemand("A NUL character is part of no path or parameter.")
    route, parts = find(method, path.strip("/"))
    audited = method != "GET" and not route.internal
    if method != "GET":
        caller = msgspec.structs.replace(caller, reads_all=False)
    try:
        check_role(route, caller)
        extra = {"session": parts.get("id", "")} if "session" in route.body.__struct_fields__ else {}
        request = Request(broker, caller, parts, query, parsed(body, route.body, **extra))
        answer = route.function(request)
        if isinstance(answer, Awaitable):
            answer = await answer
    except GPUShareError as error:
        if audited:
            broker.ledger.audit(caller, f"{method} {route.path}", path, error.reason, str(error))
        raise
    if audited:
        broker.ledger.audit(caller, f"{method} {route.path}", path, "ok")
    if method != "GET":
        broker.touch()
    if isinstance(answer, Reply):
        return answer
    return Reply(204 if answer is None else route.status, answer)


def find(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """The row for a call and the parts of its path. Raises NotFound, WrongMethod."""
    matching = [(route, found) for route in ROUTES if (found := route.pattern.fullmatch(path))]
    for route, found in matching:
        if route.method == method:
            return route, found.groupdict()
    if not matching:
        raise NotFound(f"There is no {path!r} here." if path else "This is where the API begins; it has no page.")
    allow = ", ".join(route.method for route, _ in matching)
    raise WrongMethod(f"{path} takes {allow}, not {method}.", allow=allow)


def check_role(route: Route, caller: Caller) -> None:
    """Raises NotAllowed. Whose session it is, is checked where the session is looked up."""
    if route.role == "admin" and not (caller.admin or caller.reads_all):
        raise NotAllowed("Only an admin may do this.")
    if route.role == "server" and caller.role != "server":
        raise NotAllowed("Only a single-user server may say this.")
    if route.role == "kernel" and caller.role == "user":
        raise NotAllowed("Only the session's own kernel may say this.")
    kernel_wide = route.role == "user" and "{id}" not in route.path and route.method != "GET"
    if caller.role == "kernel" and (kernel_wide and route.path != "estimate"):
        raise NotAllowed("A kernel speaks for its own session only.")


def acted(request: Request, session: Session) -> Acted:
    """The state after the act: what cannot be done at once is under way."""
    seen = session_view(request)
    return Acted(state=seen.state, message=seen.message)


def act(function: Callable[[Broker, Session], None]) -> Answer:
    """An act on the path's session without a body."""

    def answer(request: Request) -> Acted:
        session = request.session
        function(request.broker, session)
        return acted(request, session)

    return answer


def act_with_body(function: Callable[[Broker, Session, Any], None]) -> Answer:
    def answer(request: Request) -> Acted:
        session = request.session
        function(request.broker, session, request.body)
        return acted(request, session)

    return answer


def get_status(request: Request) -> Status | Reply:
    since = request.query.get("since")
    if since is not None and since == str(request.broker.rev):
        return Reply(204)
    return view.status(request.broker.frame(), request.caller)


def session_view(request: Request) -> SessionView:
    return view.session_view(request.broker.frame(), request.session, request.caller)


def why(request: Request) -> Why:
    return request.broker.why(request.session)


def put_session(request: Request) -> Awaitable[Binding]:
    spec: SessionSpec = msgspec.structs.replace(request.body, id=request.path["id"])
    return starts.open_session(request.broker, request.caller, spec)


def ended(request: Request) -> None:
    session = request.session
    if session.live:
        request.broker.end(session, request.body.why)


def hello(request: Request) -> None:
    request.session.cooperative = request.body.cooperative


def put_demand(request: Request) -> Demand:
    demand = verbs.demand_of(request.body, request.broker.default_demand)
    check_possible(request.broker, request.caller.user, demand)
    wishes.check(request.caller.user, request.path["path"])
    wishes.demand(request.broker, request.caller.user, request.path["path"], demand)
    return demand


async def get_history(request: Request) -> History:
    user, session = request.query.get("user"), request.query.get("session")
    caller = request.caller
    if caller.role == "kernel":
        if session not in (None, caller.session):
            raise NotAllowed("A kernel speaks for its own session only.")
        session = caller.session
    if not (caller.admin or caller.reads_all):
        if user not in (None, caller.user):
            raise NotAllowed("user: only an admin may see another user's history.")
        user = caller.user

    def instant(name: str) -> float | None:
        text = request.query.get(name)
        try:
            at = None if text is None else float(text)
        except ValueError:
            at = math.nan
        if at is not None and not 0.0 <= at < LATEST_S:
            raise BadDemand(f"{name}: {text!r} is not a number of seconds since 1970.")
        return at

    query = HistoryQuery(session=session, user=user, since=instant("from"), until=instant("to"))
    broker, every = request.broker, caller.admin or caller.reads_all
    past = await broker.ledger.history(query)
    if caller.role == "kernel" or session is not None:
        return past
    cluster = broker.cluster
    users = {one.user for one in cluster.sessions.values() if one.live} | set(cluster.usage) | {caller.user}
    fair = figures.fair_parts(broker.settings, users)
    shown = fair if every else {caller.user: fair[caller.user]}
    return msgspec.structs.replace(past, fair=shown, figures=figures.told(cluster, broker.clock()))


def get_readings(request: Request) -> Readings:
    cluster, query = request.broker.cluster, request.query
    device, server = query.get("device"), query.get("server")
    if device is not None and device not in cluster.devices:
        raise NotFound(f"device: {device!r} is not known here.")
    if server is not None and server not in cluster.servers:
        raise NotFound(f"server: {server!r} is not known here.")
    chosen = (
        uuid for uuid, record in cluster.devices.items() if device in (None, uuid) and server in (None, record.server)
    )
    return readings.told(cluster.past, chosen, request.broker.clock())


def get_estimate(request: Request) -> Estimate:
    broker = request.broker
    demand = verbs.demand_of(request.body, broker.default_demand)
    frame = broker.frame()
    ends = eta.ends_in_s(broker.cluster, frame.on, frame.now)
    return Estimate(eta_s=eta.of_demand(broker.cluster, frame.on, demand, ends, len(frame.line)))


async def get_doctor(request: Request) -> object:
    if request.broker.doctor is None:
        raise Unavailable("The doctor is not part of this broker.")
    return await request.broker.doctor()


def get_device(request: Request) -> DeviceView:
    record = request.broker.cluster.devices.get(request.path["uuid"])
    if record is None:
        raise NotFound(f"{request.path['uuid']!r} is not known here.")
    return view.device_view(request.broker.frame(), record, request.caller)


def drain(drained: bool) -> Answer:
    def answer(request: Request) -> DeviceView:
        verbs.drain(request.broker, request.path["uuid"], drained)
        return get_device(request)

    return answer


async def simulate(request: Request) -> CommandResult:
    """Simulated work belongs to the session of the path, whatever the body says."""
    session, broker = request.session, request.broker
    server = broker.cluster.server_of(session)
    record = broker.cluster.servers.get(server or "")
    if record is None and server is not None:
        raise Unavailable(f"{server} has not told this broker of its GPUs yet; ask again in a moment.")
    if record is None or not record.simulated:
        raise Conflict("There are no simulated devices here.", reason="not_simulated")
    if session.doing is not None:  # it is on its way to or from host memory, and the device says so
        return await broker.bus.command(record.name, request.body)
    async with session.lock:  # after what was commanded before, such as which device it is on now
        return await broker.bus.command(record.name, request.body)


async def inject(request: Request) -> CommandResult:
    broker, uuid = request.broker, request.path["uuid"]
    record = broker.cluster.devices.get(uuid)
    if record is None:
        raise NotFound(f"{uuid!r} is not known here.")
    if not broker.cluster.servers[record.server].simulated:
        raise Conflict("Faults can be injected into simulated devices only.", reason="not_simulated")
    return await broker.bus.command(record.server, Inject(session="", device=uuid, fault=request.body.fault))


def stop(request: Request) -> Acted:
    verbs.stop(request.broker, request.caller, request.path["id"], request.body)
    return Acted(state="dead", message="It is being stopped.")


def openapi(request: Request) -> object:
    from .openapi import build

    return build(ROUTES)


ROUTES: tuple[Route, ...] = (
    Route("GET", "status", "user", get_status, answer=Status, summary="Servers, devices, sessions and the queue"),
    Route("GET", "sessions/{id}", "user", session_view, answer=SessionView, summary="One session"),
    Route("GET", "sessions/{id}/why", "user", why, answer=Why, summary="Why it is where it is"),
    Route(
        "POST",
        "sessions/{id}/request",
        "user",
        act_with_body(verbs.request),
        body=verbs.Ask,
        answer=Acted,
        status=202,
        summary="Change the demand of a live session",
    ),
    Route("POST", "sessions/{id}/release", "user", act(verbs.release), answer=Acted, status=202, summary="Give back"),
    Route("POST", "sessions/{id}/park", "user", act(verbs.park), answer=Acted, status=202, summary="Park now"),
    Route("POST", "sessions/{id}/resume", "user", act(verbs.resume), answer=Acted, status=202, summary="Bring back"),
    Route(
        "POST",
        "sessions/{id}/pin",
        "user",
        act_with_body(verbs.pin),
        body=verbs.Pin,
        answer=Acted,
        status=202,
        summary="Keep it from being taken for a while",
    ),
    Route("POST", "sessions/{id}/unpin", "user", act(verbs.unpin), answer=Acted, status=202, summary="End the keeping"),
    Route(
        "POST",
        "sessions/{id}/move",
        "user",
        act_with_body(verbs.move),
        body=verbs.MoveTo,
        answer=Acted,
        status=202,
        summary="Continue on another device of the same server",
    ),
    Route(
        "POST",
        "sessions/{id}/stop",
        "user",
        stop,
        body=verbs.StopBody,
        answer=Acted,
        status=202,
        summary="End a kernel, or what an ended server left",
    ),
    Route(
        "POST",
        "sessions/{id}/pool",
        "user",
        pools.elsewhere,
        body=pools.PoolAsk,
        answer=pools.PoolView,
        status=202,
        summary="A pool of GPUs over servers for this notebook",
    ),
    Route("GET", "sessions/{id}/pool", "user", pools.elsewhere, answer=pools.PoolView, summary="Its pool"),
    Route(
        "POST",
        "sessions/{id}/pool/start",
        "user",
        pools.elsewhere,
        body=pools.PoolStart,
        answer=pools.PoolView,
        summary="A process on each GPU of its pool",
    ),
    Route("POST", "sessions/{id}/pool/end", "user", pools.elsewhere, answer=pools.PoolView, summary="End its pool"),
    Route(
        "PUT",
        "demands/{path}",
        "user",
        put_demand,
        body=verbs.Ask,
        answer=Demand,
        summary="The demand for the next kernel of that notebook",
    ),
    Route("GET", "doctor", "user", get_doctor, summary="What works here, what does not, and the fix"),
    Route("POST", "estimate", "user", get_estimate, body=verbs.Ask, answer=Estimate, summary="When a demand would fit"),
    Route("GET", "history", "user", get_history, answer=History, summary="Utilisation, shares and GPU-seconds"),
    Route("GET", "readings", "user", get_readings, answer=Readings, summary="The last hour of devices"),
    Route("GET", "openapi.json", "user", openapi, summary="This description"),
    Route("GET", "devices/{uuid}", "admin", get_device, answer=DeviceView, summary="One device"),
    Route("POST", "devices/{uuid}/drain", "admin", drain(True), answer=DeviceView, summary="Empty a device"),
    Route("POST", "devices/{uuid}/undrain", "admin", drain(False), answer=DeviceView, summary="Offer it again"),
    Route(
        "POST",
        "devices/{uuid}/inject",
        "admin",
        inject,
        body=Fault,
        answer=CommandResult,
        summary="A fault for a simulated device",
    ),
    Route("PUT", "sessions/{id}", "server", put_session, body=SessionSpec, answer=Binding, internal=True),
    Route(
        "POST",
        "sessions/{id}/started",
        "server",
        lambda request: starts.started(request.broker, request.session, request.body),
        body=starts.Started,
        internal=True,
    ),
    Route(
        "POST",
        "sessions/{id}/burst",
        "server",
        lambda request: starts.burst(request.broker, request.session, request.body.phase),
        body=BurstPhase,
        internal=True,
    ),
    Route("POST", "sessions/{id}/ended", "server", ended, body=starts.Ended, internal=True),
    Route(
        "POST",
        "servers/{origin}/alive",
        "server",
        lambda request: starts.alive(request.broker, request.caller, request.path["origin"], request.body),
        body=starts.Alive,
        answer=starts.Heard,
        internal=True,
    ),
    Route(
        "POST",
        "choose",
        "user",
        lambda request: choices.choose(request.broker, request.caller, request.body),
        body=choices.Choose,
        answer=choices.Choice,
        internal=True,
    ),
    Route("POST", "sessions/{id}/hello", "kernel", hello, body=gate.Hello, internal=True),
    Route(
        "POST",
        "sessions/{id}/admit",
        "kernel",
        lambda request: gate.admit(request.broker, request.session, request.body),
        body=gate.Admit,
        answer=Admission,
        internal=True,
    ),
    Route(
        "POST",
        "sessions/{id}/leave",
        "kernel",
        lambda request: gate.give_up(request.broker, request.session),
        internal=True,
    ),
    Route("POST", "sessions/{id}/simulate", "kernel", simulate, body=Simulate, answer=CommandResult, internal=True),
)
