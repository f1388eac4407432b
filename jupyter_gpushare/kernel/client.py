"""How a kernel speaks to the GPU service: its own session's capability over plain HTTP. Standard library only."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import errors
from ..errors import BadDemand, GPUShareError, NotManaged, Unavailable
from ..units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    import ssl

    from .pool import Pool

TIMEOUT_S = 10.0
FIRST_ASK_S = 2.0  # a wait that is over by then is not worth showing
ASK_S = 5.0  # how long one request may hang until the cell is let in
LEAST_S = 0.5  # between two requests
GRACE_S = 3.0  # what the answer may take beyond that
BODY_MAX = 1 << 24
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class Channel:
    """Calls to the service in this session's name. Every call has a connection of its own, so threads may share it."""

    def __init__(self, url: str, token: str, session: str, cafile: str | None = None) -> None:
        self.url, self.session = url.rstrip("/"), session
        self._token, self._cafile = token, cafile

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Channel:
        """The channel of this kernel. Raises NotManaged outside a managed kernel."""
        try:
            session, url, token = (environ[f"GPUSHARE_{name}"] for name in ("SESSION", "URL", "TOKEN"))
        except KeyError:
            raise NotManaged(
                "This kernel is not managed by jupyter-gpushare: it was started without the GPU service."
            ) from None
        return cls(url, token, session, environ.get("GPUSHARE_CAFILE"))

    def call(self, method: str, path: str, body: object = None, timeout: float = TIMEOUT_S) -> tuple[int, Any]:
        """Status and JSON of the answer, None for an empty one. Raises Unavailable when there is none in time."""
        import http.client
        from urllib.parse import urlsplit

        address, who = urlsplit(f"{self.url}/{path}"), {}
        try:
            if address.scheme == "https":
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    address.netloc, timeout=timeout, context=_trust(self._cafile)
                )
            elif address.scheme == "http+unix":
                connection, who = _over_socket(address.netloc, self.session, timeout)
            else:
                connection = http.client.HTTPConnection(address.netloc, timeout=timeout)
            try:
                connection.request(
                    method,
                    f"{address.path}?{address.query}" if address.query else address.path,
                    None if body is None else json.dumps(body),
                    {"Authorization": f"gpushare {self._token}", "Content-Type": "application/json", **who},
                )
                answer = connection.getresponse()
                text = answer.read(BODY_MAX)
            finally:
                connection.close()
            return answer.status, json.loads(text) if text else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"The GPU service does not answer ({error}). Your work is untouched.") from error


def _trust(cafile: str | None) -> ssl.SSLContext:
    """Who is believed over https: the server whose own certificate is the first in `cafile`, and nobody else.

    Neither the name in it counts (kernels reach their server by the loopback) nor who signed it. Without `cafile`:
    whoever the system believes. Raises OSError, ValueError for a file without a certificate.
    """
    import ssl

    if cafile is None:
        return ssl.create_default_context()
    with open(cafile, encoding="utf-8", errors="replace") as file:
        own = CERTIFICATE.search(file.read())
    if own is None:
        raise ValueError(f"{cafile} holds no certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=own[0])
    return context


def _over_socket(netloc: str, session: str, timeout: float) -> tuple[Any, dict[str, str]]:
    """A connection to `user@<quoted path of a Unix socket>`, and the header that says who asks there.

    Kernels of a script have no server whose capability they could show: the socket is open to its own OS user only.
    """
    import http.client
    import socket
    from urllib.parse import unquote

    user, _, place = netloc.rpartition("@")
    folder, name = os.path.split(unquote(place))
    connection = http.client.HTTPConnection("localhost", timeout=timeout)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(timeout)
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)  # its whole path may be longer than an address can be
    try:
        connection.sock.connect(f"/proc/self/fd/{opened}/{name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(opened)
    return connection, {"X-GPUShare-Caller": json.dumps({"user": unquote(user), "role": "kernel", "session": session})}


CHANGING = ("request", "release", "park", "resume")  # the gate may say something else afterwards


class Session:
    """This kernel's session. Verbs are those of ``%gpu``; answers are the service's JSON as plain dicts.

    Every verb raises the service's own errors (errors.py) with its message: BadDemand for a field that is not usable,
    Conflict (NeedsRestart, OverLimit, Refused) for what cannot be had now, Unavailable when the service is away.

    `changed` is set by every verb that changes the session: the gate's file follows a moment later, so the next cell
    asks whatever it says. A process has one session, so all objects share it.
    """

    changed = False

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.id = channel.session

    @classmethod
    def from_environment(cls) -> Session:
        """Raises NotManaged outside a managed kernel."""
        return cls(Channel.from_environment())

    def __repr__(self) -> str:
        return f"<GPU session {self.id}>"

    def cluster(self) -> dict[str, Any]:
        """Servers, devices, this session and the length of the queue."""
        return self._call("GET", "status")

    def status(self) -> dict[str, Any]:
        """This session: devices, share, state, place in line, what is next."""
        return self._verb("GET")

    def why(self) -> dict[str, Any]:
        """Why it is where it is: the terms of its fitness, and the devices that lost."""
        return self._verb("GET", "why")

    def history(self) -> dict[str, Any]:
        """Its utilisation, shares and GPU-seconds over time."""
        from urllib.parse import quote

        return self._call("GET", f"history?session={quote(self.id)}")

    def request(
        self,
        gpus: float | None = None,
        *,
        memory: int | str | None = None,
        exclusive: bool | None = None,
        model: str | None = None,
        server: str | None = None,
        restart: bool = False,
    ) -> dict[str, Any]:
        """Changes the demand; what is None stays. `model` and `server` are lifted by "any".

        `restart` reserves what a running kernel cannot get.
        """
        places = {name: place for name, place in (("model", model), ("server", server)) if place is not None}
        demand: dict[str, Any] = {
            "gpus": gpus,
            "memory": None if memory is None else parse_bytes(memory),
            "exclusive": exclusive,
            "constraints": places or None,
            "apply": "restart" if restart else None,
        }
        return self._verb("POST", "request", {name: value for name, value in demand.items() if value is not None})

    def near(self, *places: str) -> dict[str, Any]:
        """What it depends on: paths of data, or `session:<id>`. Replaces what was said before."""
        if not places:
            raise BadDemand("near: a path of data or session:<id> is missing.")
        return self._verb(
            "POST", "request", {"near": [p if p.startswith(("data:", "session:")) else f"data:{p}" for p in places]}
        )

    def release(self) -> dict[str, Any]:
        """Gives the share back."""
        return self._verb("POST", "release")

    def park(self) -> dict[str, Any]:
        """Moves its GPU memory to host memory now."""
        return self._verb("POST", "park")

    def resume(self) -> dict[str, Any]:
        """Brings it back, or asks for a device again after a release."""
        return self._verb("POST", "resume")

    def pin(self, duration: float | str = "1h") -> dict[str, Any]:
        """Keeps it from being taken for this long: seconds, or text such as ``2h``."""
        return self._verb("POST", "pin", {"for_s": parse_seconds(duration)})

    def unpin(self) -> dict[str, Any]:
        return self._verb("POST", "unpin")

    def wait(
        self, timeout_s: float | None = None, seen: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """Waits until a cell may use the device; the last answer's `admitted` says whether it may.

        It is False only when `timeout_s` ended first. Interrupted or timed out, the place in line is given up.
        `seen` is told each answer that lets it wait on: place in line, estimate, message.
        """
        began, hang_s = time.monotonic(), FIRST_ASK_S
        try:
            while True:
                asked = time.monotonic()
                left_s = math.inf if timeout_s is None else max(0.0, began + timeout_s - asked)
                answer = self.admit(min(hang_s, left_s))
                if answer["admitted"]:
                    return answer
                if left_s <= hang_s:
                    self.leave()
                    return answer
                if seen is not None:
                    seen(answer)
                time.sleep(max(0.0, LEAST_S - (time.monotonic() - asked)))  # a service that does not hang the request
                hang_s = ASK_S
        except KeyboardInterrupt:
            self.leave()
            raise

    def admit(self, wait_s: float = ASK_S) -> dict[str, Any]:
        """One request to be let in; answers when it is, or after `wait_s` with the place in line."""
        answer = self._verb("POST", "admit", {"wait_s": wait_s}, wait_s + GRACE_S)
        if not isinstance(answer.get("admitted"), bool):
            raise Unavailable("The GPU service gave an answer that cannot be read.")
        return answer

    def leave(self) -> None:
        """Gives the place in line up, as well as that can be told: the service forgets who does not ask again."""
        try:
            self._verb("POST", "leave", timeout=GRACE_S)
        except GPUShareError:
            pass

    def hello(self, cooperative: bool = True) -> None:
        """Says whether this kernel asks at its cells' start."""
        self._verb("POST", "hello", {"cooperative": cooperative})

    def pool(
        self,
        gpus: int,
        engine: str | None = None,
        *,
        memory: int | str | None = None,
        model: str | None = None,
        timeout_s: float | None = None,
        seen: Callable[[dict[str, Any]], None] | None = None,
    ) -> Pool:
        """So many GPUs of one or several servers, all of them or none, and an engine on them: "dask", "torchrun".

        Waits until they are there. Raises BadDemand, Conflict.
        """
        from .pool import Pool, check, filled

        check(engine)
        asked = {"gpus": gpus, "memory": memory, "model": model}
        answer = self.pool_call("POST", "pool", {name: value for name, value in asked.items() if value is not None})
        return filled(Pool(self, answer).wait(timeout_s, seen), engine)

    def pool_call(self, method: str, verb: str, body: object = None, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """What is asked of its pool; an answer of the service."""
        return self._verb(method, verb, body, timeout)

    def _verb(self, method: str, verb: str = "", body: object = None, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        from urllib.parse import quote

        if method == "POST" and verb in CHANGING:
            Session.changed = True

        return self._call(method, f"sessions/{quote(self.id, safe='')}/{verb}".rstrip("/"), body, timeout)

    def _call(self, method: str, path: str, body: object = None, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        status, answer = self._channel.call(method, path, {} if body is None and method == "POST" else body, timeout)
        if status >= 400:
            raise error_of(status, answer)
        if answer is not None and not isinstance(answer, dict):
            raise Unavailable(f"The GPU service gave an answer that cannot be read ({status}).")
        return answer or {}


def error_of(status: int, answer: object) -> GPUShareError:
    """The error behind an answer: the class of its reason, else of its status, with the service's message."""
    said = answer if isinstance(answer, dict) else {}
    message, reason = said.get("message") or f"The GPU service answered {status}.", said.get("reason")
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GPUShareError)]
    for kind in kinds:
        if reason == kind.reason:
            return kind(message)
    for kind in kinds:
        if status == kind.status and kind is not GPUShareError:
            return kind(message, reason=reason)
    return Unavailable(message, reason=reason)
