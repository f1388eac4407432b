"""How every door answers: the broker's plain data as JSON, its errors as {"message", "reason"}, its stream as SSE."""

from __future__ import annotations

from typing import Any

import msgspec
from tornado import iostream, web

from ..broker.port import BrokerPort
from ..errors import GPUShareError
from ..model import Caller
from .sse import heartbeaten


def refuse(handler: web.RequestHandler, error: GPUShareError) -> None:
    """The one translation of our errors into HTTP."""
    handler.set_status(error.status)
    if error.status == 503:
        handler.set_header("Retry-After", "1")
    _json(handler, {"message": str(error), "reason": error.reason})


async def send(handler: web.RequestHandler, port: BrokerPort, caller: Caller, path: str) -> None:
    """What the broker says to this request."""
    query = {name: handler.get_query_argument(name) for name in handler.request.query_arguments}
    reply = await port.call(caller, handler.request.method or "GET", path, query, handler.request.body)
    handler.set_status(reply.status)
    if reply.status == 204:
        handler.clear_header("Content-Type")
        await handler.finish()
    else:
        _json(handler, reply.body)


async def send_stream(handler: web.RequestHandler, port: BrokerPort, caller: Caller) -> None:
    """The broker's events until one of the two sides goes."""
    last = handler.request.headers.get("Last-Event-ID", "")
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
    handler.finish(msgspec.json.encode(body))
