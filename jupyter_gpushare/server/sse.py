"""Server-sent events as text: written by the doors, read by the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from ..broker.port import StreamEvent
from ..tasks import end

HEARTBEAT = b": still here\n\n"
HEARTBEAT_S = 15.0


def written(event: StreamEvent) -> bytes:
    """One event. JSON has no line breaks, so its data is one line."""
    return b"event: %b\nid: %d\ndata: %b\n\n" % (event.event.encode(), event.id, msgspec.json.encode(event.data))


def read(block: bytes) -> StreamEvent | None:
    """The event of one block between blank lines; None for a comment."""
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and not line.startswith(b":"))
    if b"data" not in fields:
        return None
    event, number = fields[b"event"].decode(), int(fields[b"id"])
    return msgspec.convert({"event": event, "id": number, "data": msgspec.json.decode(fields[b"data"])}, StreamEvent)


async def events(chunks: asyncio.Queue[bytes | None]) -> AsyncIterator[StreamEvent]:
    """The events in pieces of a stream, cut anywhere; None ends them."""
    rest = b""
    while (chunk := await chunks.get()) is not None:
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            event = read(block)
            if event is not None:
                yield event


async def heartbeaten(stream: AsyncIterator[StreamEvent], every_s: float = HEARTBEAT_S) -> AsyncIterator[bytes]:
    """The stream as bytes, with a comment whenever nothing was said for that long: proxies close what is silent."""
    upcoming = asyncio.ensure_future(stream.__anext__())
    try:
        while True:
            done, _ = await asyncio.wait({upcoming}, timeout=every_s)
            if not done:
                yield HEARTBEAT
                continue
            try:
                event = upcoming.result()
            except StopAsyncIteration:
                return
            yield written(event)
            upcoming = asyncio.ensure_future(stream.__anext__())
    finally:
        await end(upcoming)
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
