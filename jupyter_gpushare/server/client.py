"""The BrokerPort of a broker in another process: HTTP on its Unix socket, or on a URL with a token."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from tornado.httpclient import HTTPError, HTTPRequest, HTTPResponse
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from ..broker.port import Reply, StreamEvent
from ..errors import GPUShareError, Unavailable, WrongMethod
from ..model import Caller
from .sse import events

CALLER = "X-GPUShare-Caller"  # who asks, as JSON; believed on a socket whose other end is the same OS user
CONNECT_S = 2.0
ANSWER_S = 10.0  # besides what the request itself asks to wait
STANDBY = "standby"  # the reason of a broker that waits until it leads
LONGEST_PATH = 100  # bytes of a socket's path; the system's limit is 108


class _Wait(msgspec.Struct):
    wait_s: float = 0.0


class _Failure(msgspec.Struct):
    message: str = ""
    reason: str = ""


def reachable(path: Path) -> tuple[str, int | None]:
    """(a name of this path that a socket address can hold, the open folder behind it if there is one)."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return str(path), None
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    return f"/proc/self/fd/{folder}/{path.name}", folder


class _SocketResolver(Resolver):
    """Every host is one Unix socket."""

    def initialize(self, path: Path) -> None:
        self.path = path

    async def resolve(self, host: str, port: int, family: int = 0) -> list[tuple[int, Any]]:
        name, folder = reachable(self.path)
        if folder is not None:  # kept until the connection has been tried
            asyncio.get_running_loop().call_later(CONNECT_S + 1, os.close, folder)
        return [(socket.AF_UNIX, name)]


def error_from(status: int, body: bytes) -> GPUShareError:
    """The error of errors.py that a door translated into this answer."""
    try:
        said = msgspec.json.decode(body, type=_Failure)
    except msgspec.DecodeError:
        said = _Failure()
    kinds = [GPUShareError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    known = [kind for kind in kinds if kind.reason == said.reason] or [kind for kind in kinds if kind.status == status]
    return (known or [Unavailable])[0](said.message or f"The broker answered {status}.", reason=said.reason or None)


class Client:
    """Asks one broker. `address` is ``unix:///path`` or an http(s) base URL below which ``api/v1/`` lies; several with
    commas between them where one of several brokers leads: whoever does not answer is followed by the next."""

    def __init__(self, address: str, token: str | None = None) -> None:
        parts = urlsplit(address)
        self.address = address
        self._headers = {} if token is None else {"Authorization": f"token {token}"}
        if parts.scheme == "unix":
            self._bases, resolver = ["http://broker/api/v1/"], _SocketResolver(path=Path(parts.path))
        else:
            self._bases, resolver = [f"{one.strip().rstrip('/')}/api/v1/" for one in address.split(",")], None
        self._http = SimpleAsyncHTTPClient(force_instance=True, max_clients=1000, resolver=resolver)

    async def call(
        self, caller: Caller, method: str, path: str, query: Mapping[str, str] = {}, body: bytes = b""
    ) -> Reply:
        """The broker's answer. Raises its own error, or Unavailable where it does not answer in time."""
        url = self._bases[0] + quote(path) + (f"?{urlencode(query)}" if query else "")
        answer = await self._fetch(
            HTTPRequest(
                url,
                method=method,
                headers=self._who(caller),
                body=body or None,
                allow_nonstandard_methods=True,
                connect_timeout=CONNECT_S,
                request_timeout=ANSWER_S + _wait_of(body),
            )
        )
        if answer.code >= 400:
            error = error_from(answer.code, answer.body)
            if error.reason == STANDBY:
                self._turn(url)
            if isinstance(error, WrongMethod):
                error.allow = answer.headers.get("Allow", "")
            raise error
        return Reply(answer.code, msgspec.json.decode(answer.body) if answer.body else None)

    async def stream(self, caller: Caller, last_id: int | None = None) -> AsyncIterator[StreamEvent]:
        """Events until the broker goes away; then raises Unavailable."""
        headers = self._who(caller) | ({} if last_id is None else {"Last-Event-ID": str(last_id)})
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        request = HTTPRequest(
            self._bases[0] + "events",
            headers=headers,
            streaming_callback=chunks.put_nowait,
            connect_timeout=CONNECT_S,
            request_timeout=0,
        )
        asking = asyncio.ensure_future(self._fetch(request))
        asking.add_done_callback(lambda _: chunks.put_nowait(None))
        try:
            async for event in events(chunks):
                yield event
            answer = await asking
            self._turn(request.url)
            raise error_from(answer.code, b"") if answer.code >= 400 else Unavailable("The broker ended its stream.")
        finally:
            asking.cancel()

    def close(self) -> None:
        self._http.close()

    def _who(self, caller: Caller) -> dict[str, str]:
        return self._headers | {CALLER: msgspec.json.encode(caller).decode(), "Content-Type": "application/json"}

    def _turn(self, asked: str) -> None:
        """From the broker that was asked to the next one, unless another call did so already."""
        if asked.startswith(self._bases[0]):
            self._bases = [*self._bases[1:], self._bases[0]]

    async def _fetch(self, request: HTTPRequest) -> HTTPResponse:
        try:
            return cast(HTTPResponse, await self._http.fetch(request, raise_error=False))
        except (HTTPError, OSError) as error:
            self._turn(request.url)
            raise Unavailable(f"The broker at {self.address} does not answer ({error}).") from error


def _wait_of(body: bytes) -> float:
    """How long the request itself asks to wait."""
    try:
        return msgspec.json.decode(body, type=_Wait).wait_s if body else 0.0
    except (msgspec.DecodeError, RecursionError):  # the broker says what is wrong with it
        return 0.0
