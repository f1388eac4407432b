"""How every door answers: the broker's plain data as JSON, its errors as {"message", "reason"}, its stream as SSE."""

from __future__ import annotations

from http.client import responses
from typing import Any

import msgspec
from tornado import iostream, web

from ..broker.bodies import BODY_MAX, NUL
from ..broker.port import BrokerPort
from ..errors import BadDemand, GPUShareError, NotAllowed, NotFound, WrongMethod
from ..model import Caller
from .client import CALLER
from .sse import heartbeaten

SAID = {  # what tornado and jupyter_server refuse before any of us is asked: status -> reason, message
    400: ("bad_request", "This request cannot be read."),
    403: (NotAllowed.reason, "You are not logged in here, or may not do this."),
    404: (NotFound.reason, "There is nothing here."),
    405: (WrongMethod.reason, "This method is not known here."),
}
BROKEN = "The GPU service failed at this request; the server's log says why."
METHODS = "GET, POST, PUT"  # all that any path takes
READ_MAX = 2 * BODY_MAX  # bytes of a body; beyond, a door of ours closes before it has read them
READ_S = 60.0  # for a client to send its body
NUMBER_MAX = 20  # digits of an event's id


def caller_named(text: str) -> Caller:
    """The caller that a header names as JSON. Raises BadDemand."""
    try:
        if NUL.decode() in text:
            raise BadDemand(f"{CALLER}: a NUL character is part of no name.")
        return msgspec.json.decode(text, type=Caller)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadDemand(f"{CALLER}: {error}.") from None
    except RecursionError:
        raise BadDemand(f"{CALLER}: nested deeper than is read.") from None


async def answer(handler: web.RequestHandler, port: BrokerPort, caller: Caller, path: str) -> None:
    """What the broker says to this request, as JSON or as its stream. Raises GPUShareError."""
    if path == "events":
        if handler.request.method != "GET":
            raise WrongMethod(f"events takes GET, not {handler.request.method}.", allow="GET")
        await _send_stream(handler, port, caller)
    else:
        await _send(handler, port, caller, path)


def refuse(handler: web.RequestHandler, error: GPUShareError) -> None:
    """The one translation of our errors into HTTP."""
    handler.set_status(error.status)
    if error.status == 503:
        handler.set_header("Retry-After", "1")
    if isinstance(error, WrongMethod):
        handler.set_header("Allow", error.allow or METHODS)
    _json(handler, {"message": str(error), "reason": error.reason})


def refuse_unasked(handler: web.RequestHandler, status: int, error: BaseException | None) -> None:
    """The same for what the web server refuses by itself, and for a bug of ours: no page, no traceback."""
    reason, message = SAID.get(status) or (
        GPUShareError.reason,
        responses.get(status, "Refused.") if status < 500 else BROKEN,
    )
    if isinstance(error, web.HTTPError) and error.log_message:
        message = error.log_message % error.args  # tornado doubles each % of a message without arguments
    if status == WrongMethod.status:
        handler.set_header("Allow", METHODS)
    _json(handler, {"message": message, "reason": reason})


async def _send(handler: web.RequestHandler, port: BrokerPort, caller: Caller, path: str) -> None:
    query = {name: handler.get_query_argument(name) for name in handler.request.query_arguments}
    reply = await port.call(caller, handler.request.method or "GET", path, query, handler.request.body)
    handler.set_status(reply.status)
    if reply.status == 204:
        handler.clear_header("Content-Type")
        handler.finish()  # not awaited: whoever asked may have left, and nothing follows
    else:
        _json(handler, reply.body)


async def _send_stream(handler: web.RequestHandler, port: BrokerPort, caller: Caller) -> None:
    """The broker's events until one of the two sides goes."""
    last = handler.request.headers.get("Last-Event-ID", "")[:NUMBER_MAX]
    handler.set_header("Content-Type", "text/event-stream")
    handler.set_header("Cache-Control", "no-cache")
    handler.set_header("X-Accel-Buffering", "no")  # nginx would hold the events back
    await handler.flush()
    stream: Any = heartbeaten(port.stream(caller, int(last) if last.isdecimal() else None))
    try:
        async for text in stream:
            handler.write(text)
            await handler.flush()
    except (iostream.StreamClosedError, GPUShareError):
        pass  # the client left, or the broker did: a client reconnects by itself, with its last event's id
    finally:
        await stream.aclose()


def _json(handler: web.RequestHandler, body: object) -> None:
    handler.set_header("Content-Type", "application/json")
    handler.set_header("Cache-Control", "no-store")  # it is one user's; the next one at this browser is another
    handler.finish(msgspec.json.encode(body))
