"""The bus over NATS: broker and agents on different machines.

==============================  =========================================================================
subject ``gpushare.report.S``   server S says what changed; answered, so that an agent never outruns the broker
subject ``gpushare.command.S``  the leading broker commands server S; answered by its CommandResult
key ``S`` of gpushare-present   S is there: kept by its agent, gone `TTL_S` after its last sign
key ``leader``                  of gpushare-leader: the broker that commands; its first revision is its term
==============================  =========================================================================

Nothing is kept for later: what cannot be told now is told as it is then (an agent reports in full when it is back).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import KeyValueConfig
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from ..errors import Unavailable
from ..model import AnyCommand, CommandResult, NodeReport, SayAgain
from ..tasks import end, own
from .base import hear
from .leader import Leadership
from .wire import Unreadable, opened, sealed, token

log = logging.getLogger(__name__)
PRESENT, LEADER = "gpushare-present", "gpushare-leader"
TTL_S = 15.0  # of a server's presence
LEADER_TTL_S = 3.0  # a killed leader's place is free after this
REPORT_S = 5.0  # for the broker to take a report in
RETRY_S = 1.0
RUNNING = 64  # commands that one agent carries out at a time; more are refused, not queued
PENDING_BYTES = 64 << 20  # of reports the broker has not looked at yet; what is beyond is not answered
EPOCHS = 32  # of one server that are remembered against messages from the past
AWAY = (nats.errors.Error, OSError, asyncio.TimeoutError)
Handler = Callable[[AnyCommand], Awaitable[CommandResult]]


class NatsBus:
    """A `base.Bus`. `start` before its use; away and back again, it goes on by itself.

    `url` is ``nats://user:password@host:port`` or ``tls://…``, several with commas between them; `ca_file` names who
    signed the servers' certificates. Without `creates` the buckets are waited for: an agent may not make them.
    """

    def __init__(self, url: str, *, name: str = "", ca_file: str = "", creates: bool = True) -> None:
        self.servers = [one.strip() for one in url.split(",")]
        self.trouble: str | None = None  # what is wrong with the bus now, in words
        self.term = 0  # of this broker's leadership
        self._name, self._ca_file, self._creates = name, ca_file, creates
        self._client = Client()
        self._connected = asyncio.Event()
        self._listeners: list[Callable[[NodeReport], None]] = []
        self._hearing: asyncio.Future[None] | None = None  # until reports are subscribed to
        self._handlers: dict[str, Handler] = {}
        self._subscribed: dict[str, Any] = {}
        self._displaced: set[str] = set()  # names that another agent has now
        self._seen: dict[str, dict[str, int]] = {}  # server -> epoch -> the last report's number
        self._leading: Leadership | None = None
        self._highest = 0  # term of the newest leader that commanded this agent
        self._followed = asyncio.Event()  # set when that leader has a successor; then there is a new one
        self._tasks: set[asyncio.Future[None]] = set()
        self._running: set[asyncio.Future[None]] = set()

    @property
    def place(self) -> str:
        """Where NATS is, for people: without what is secret in a URL."""
        parts = map(urlsplit, self.servers)
        return ", ".join(f"{one.hostname}:{one.port}" if one.port else str(one.hostname) for one in parts)

    # --- its life ---

    async def start(self, wait_s: float = 5.0) -> None:
        """Connects, and returns after `wait_s` also where nobody answers yet: that goes on in the background."""
        self._own(self._connect())
        try:
            await asyncio.wait_for(self._connected.wait(), wait_s)
        except asyncio.TimeoutError:
            log.warning("%s It is tried again by itself.", self.trouble)

    async def close(self) -> None:
        """Gives up what it leads; its servers are absent when their presence runs out."""
        if self._leading is not None:
            await self._leading.release()
        await end(*self._tasks, *self._running)
        self._listeners.clear()
        self._handlers.clear()
        await _let_go(self._client)

    # --- up ---

    async def report(self, report: NodeReport) -> float | None:
        """Returns when the broker has taken it in. Raises Unavailable where it did not, with the reason."""
        if report.server in self._displaced:
            raise Unavailable(f"Another agent calls itself {report.server}; this one is silent until that has gone.")
        answer = await self._answer_of_leader(f"gpushare.report.{token(report.server)}", sealed(report))
        if not answer.ok:
            raise Unavailable(f"The broker refused the report of {report.server}: {answer.message}")
        return answer.again_s

    async def _answer_of_leader(self, subject: str, data: bytes) -> CommandResult:
        """Not waited for any more once another leads: it was killed or paused with the report. Raises Unavailable."""
        asking = asyncio.ensure_future(self._ask(subject, data, REPORT_S))
        changing = asyncio.ensure_future(self._followed.wait())
        try:
            await asyncio.wait({asking, changing}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise Unavailable("another broker leads since; it is told again.", reason="bus")
            return asking.result()
        finally:
            await end(asking, changing)

    def on_report(self, handler: Callable[[NodeReport], float | None]) -> None:
        self._listeners.append(handler)
        if self._hearing is None:
            self._hearing = self._own(self._subscribe("gpushare.report.*", self._heard))

    async def greet(self) -> None:
        """Has every agent that is there say everything, now that this broker hears; they obey no earlier one then.

        What is asked goes the way that the subscription went before it, so no answer is missed. nats-py's `flush` would
        not do: cancelled or late, its answer ends the connection (2.16: a pong for a future that is done).
        """
        if self._hearing is not None:
            await self._hearing
        try:
            there = await self.present()
        except (*AWAY, Unavailable) as error:
            log.debug("Nobody was greeted: %r", error)  # agents speak by themselves, a little later
            return
        await asyncio.gather(*map(self._greet, there))

    async def _greet(self, key: str) -> None:
        try:
            await self._ask(f"gpushare.command.{key}", sealed(SayAgain(session=""), self.term), REPORT_S)
        except Unavailable as error:
            log.debug("%s was not greeted: %s", key, error)

    async def _heard(self, message: Msg) -> None:
        try:
            report: NodeReport = opened(message.data, NodeReport)[0]
            self._check(report, message.subject)
        except Unreadable as error:
            log.warning("%s is refused (%s): %s", message.subject, error.answer.reason, error)
            await self._answer(message, error.answer)
            return
        await self._answer(message, CommandResult(ok=True, again_s=hear(self._listeners, report)))

    def _check(self, report: NodeReport, subject: str) -> None:
        """Whether it is that server's (whose name the subject is, which NATS lets nobody else use), and new."""
        if subject != f"gpushare.report.{token(report.server)}":
            raise Unreadable("forged", f"It says it is of {report.server}.")
        epochs = self._seen.setdefault(report.server, {})
        if report.seq <= epochs.get(report.epoch, -1):
            raise Unreadable("replayed", f"Report {report.seq} of this agent was taken in before.")
        epochs[report.epoch] = report.seq
        while len(epochs) > EPOCHS:
            del epochs[next(iter(epochs))]

    # --- down ---

    async def command(self, server: str, command: AnyCommand, timeout_s: float = 5.0) -> CommandResult:
        try:
            return await self._ask(f"gpushare.command.{token(server)}", sealed(command, self.term), timeout_s)
        except Unavailable as error:
            return CommandResult(ok=False, reason="unreachable", message=f"{server}: {error}")

    def serve(self, server: str, handler: Handler) -> None:
        known = server in self._handlers
        self._handlers[server] = handler
        if not known:
            self._own(self._stay(server))

    async def _told(self, server: str, message: Msg) -> None:
        """Commands to one agent run side by side; a stream of them is not let pile up."""
        if len(self._running) >= RUNNING:
            words = f"{server} carries out {RUNNING} commands already."
            await self._answer(message, CommandResult(ok=False, reason="busy", message=words))
            return
        own(self._running, self._carry_out(server, message))

    async def _carry_out(self, server: str, message: Msg) -> None:
        try:
            command = self._from_the_leader(message.data)
            answer = await self._handlers[server](command)
        except Unreadable as error:
            log.warning("A command to %s is refused (%s): %s", server, error.answer.reason, error)
            answer = error.answer
        except Exception:  # answered as a failure: the broker must not fall over a node's bug
            log.exception("%s failed to carry out a command", server)
            answer = CommandResult(ok=False, reason="error", message=f"{server} failed; its log says why.")
        await self._answer(message, answer)

    def _from_the_leader(self, data: bytes) -> AnyCommand:
        command: AnyCommand
        command, term = opened(data, AnyCommand)
        if term < self._highest:
            raise Unreadable("fenced", f"The broker of term {term} leads no more; term {self._highest} does.")
        if term > self._highest > 0:
            self._followed.set()
            self._followed = asyncio.Event()
        self._highest = term
        return command

    # --- who is there, who leads ---

    async def present(self) -> frozenset[str]:
        """Tokens (`wire.token`) of the servers whose agents are there. Raises Unavailable.

        The stream is asked for its subjects: nats-py's `keys` watches, and at times ends before the first key (2.16).
        """
        under = f"$KV.{PRESENT}."
        try:
            await self._bucket(PRESENT, TTL_S)
            stream = self._client.jetstream(timeout=REPORT_S)
            info = await stream.stream_info(f"KV_{PRESENT}", subjects_filter=f"{under}>")
        except AWAY as error:
            raise Unavailable(f"The bus cannot tell which servers are there ({error!r}).") from error
        return frozenset(subject.removeprefix(under) for subject in info.state.subjects or ())

    async def lead(self, name: str, ttl_s: float = LEADER_TTL_S) -> Leadership:
        """Waits until this broker leads. It commands with its term until `Leadership.lost` is set."""
        said, mark = None, f"{name}/{uuid.uuid4().hex[:8]}"  # machines and containers may have one name
        while True:
            try:
                await self._connected.wait()
                bucket = await self._bucket(LEADER, ttl_s)
                term = await bucket.create("leader", mark.encode())
            except (KeyWrongLastSequenceError, KeyNotFoundError):  # somebody has it; or had, until just now
                self.trouble = None
                await asyncio.sleep(ttl_s / 6)
            except AWAY as error:
                self.trouble = f"NATS at {self.place} cannot say who leads ({error!r}); it needs JetStream."
                if self.trouble != said:
                    said = self.trouble
                    log.warning("%s It is tried again by itself.", said)
                await asyncio.sleep(RETRY_S)
            else:
                self.trouble = None
                log.info("%s leads (term %d)", name, term)
                self.term, self._leading = term, Leadership(bucket, mark, term, ttl_s)
                return self._leading

    async def _stay(self, server: str) -> None:
        """Serves a name and says so again and again. Whoever takes the name last has it; the other one steps back."""
        key, revision, subject = token(server), 0, f"gpushare.command.{token(server)}"
        announced, said = False, ""
        while True:
            try:
                await self._connected.wait()
                bucket = await self._bucket(PRESENT, TTL_S)
                if not announced:
                    await self._subscribe(subject, partial(self._told, server))
                    revision, announced = await bucket.put(key, self._name.encode()), True
                elif server in self._displaced:
                    revision = await bucket.create(key, self._name.encode())
                    await self._subscribe(subject, partial(self._told, server))
                    self._displaced.discard(server)
                    log.info("The name %s is free again; this agent has it.", server)
                else:
                    revision = await self._renew(bucket, key, revision)
            except KeyWrongLastSequenceError:
                await self._step_back(server, subject)
            except BucketNotFoundError:
                log.debug("No broker was ever there; %s waits for the first", server)
                await asyncio.sleep(RETRY_S)
                continue
            except AWAY as error:
                if repr(error) != said:
                    said = repr(error)
                    log.warning("%s cannot say that it is there: %s", server, said)
                await asyncio.sleep(RETRY_S)
                continue
            else:
                said = ""
            await asyncio.sleep(TTL_S / 3)

    async def _step_back(self, server: str, subject: str) -> None:
        if server not in self._displaced:
            self._displaced.add(server)
            log.error("Another agent calls itself %s since; this one is silent until that has gone.", server)
            await self._subscribed.pop(subject).unsubscribe()

    async def _renew(self, bucket: KeyValue, key: str, revision: int) -> int:
        try:
            return await bucket.update(key, self._name.encode(), last=revision)
        except KeyWrongLastSequenceError:  # it ran out while the bus was away, or somebody else has it
            return await bucket.create(key, self._name.encode())

    # --- NATS ---

    async def _connect(self) -> None:
        context = ssl.create_default_context(cafile=self._ca_file or None) if self._uses_tls() else None
        while not self._client.is_connected:
            try:
                await self._client.connect(
                    self.servers,
                    name=self._name or None,
                    tls=context,
                    inbox_prefix=f"_INBOX.{self._user()}".encode(),
                    connect_timeout=5,
                    reconnect_time_wait=1,
                    max_reconnect_attempts=-1,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    error_cb=self._failed,
                    disconnected_cb=self._left,
                    reconnected_cb=self._back,
                    allow_reconnect=True,
                )
            except AWAY as error:
                await self._failed(error)
                await _let_go(self._client)  # one that was refused keeps its connection
                self._client = Client()
                await asyncio.sleep(RETRY_S)
        await self._back()

    def _uses_tls(self) -> bool:
        return any(urlsplit(one).scheme == "tls" for one in self.servers)

    def _user(self) -> str:
        """Answers come to subjects below the user's own name, where nobody else may listen."""
        return token(urlsplit(self.servers[0]).username or "anybody")

    async def _back(self) -> None:
        self.trouble = None
        self._connected.set()
        log.info("Connected to NATS at %s", self._client.connected_url and self._client.connected_url.netloc)

    async def _left(self) -> None:
        self._connected.clear()
        self.trouble = "NATS is away."

    async def _failed(self, error: Exception) -> None:
        words = f"NATS at {self.place}: {error or type(error).__name__}."
        if words != self.trouble:
            log.warning("%s", words)
        self.trouble = words

    async def _bucket(self, name: str, ttl_s: float) -> KeyValue:
        store = self._client.jetstream(timeout=REPORT_S)
        try:
            return await store.key_value(name)
        except BucketNotFoundError:
            if not self._creates:
                raise
            return await store.create_key_value(KeyValueConfig(bucket=name, ttl=ttl_s))

    async def _subscribe(self, subject: str, hear: Callable[[Msg], Awaitable[None]]) -> None:
        """nats-py takes subscriptions up again after every reconnection."""
        await self._connected.wait()
        if subject in self._subscribed:
            return
        self._subscribed[subject] = await self._client.subscribe(subject, cb=hear, pending_bytes_limit=PENDING_BYTES)

    async def _ask(self, subject: str, data: bytes, timeout_s: float) -> CommandResult:
        """The answer. Raises Unavailable where there is none in time."""
        if not self._connected.is_set():
            raise Unavailable(self.trouble or "NATS is away.", reason="bus")
        try:
            answer = await self._client.request(subject, data, timeout=timeout_s)
            result: CommandResult = opened(answer.data, CommandResult)[0]
            return result
        except nats.errors.NoRespondersError:
            raise Unavailable("nobody listens there.", reason="bus") from None
        except (nats.errors.TimeoutError, asyncio.TimeoutError):
            raise Unavailable(f"no answer within {timeout_s:g} s.", reason="bus") from None
        except nats.errors.MaxPayloadError:
            words = f"{len(data)} bytes are more than NATS takes in one message (max_payload)."
            raise Unavailable(words, reason="bus") from None
        except (nats.errors.Error, OSError, Unreadable) as error:
            raise Unavailable(f"{error!r}", reason="bus") from error

    async def _answer(self, message: Msg, answer: CommandResult) -> None:
        try:
            if message.reply:
                await message.respond(sealed(answer))
        except nats.errors.Error as error:
            log.debug("An answer was lost: %r", error)

    def _own(self, work: Awaitable[None]) -> asyncio.Future[None]:
        return own(self._tasks, work)


async def _let_go(client: Client) -> None:
    """Closes it, also one that lost its connection or never had one."""
    if not client.is_connected:  # nats-py 2.16 would write what waits into the lost connection, and get no further
        client._pending, client._pending_data_size = [], 0
    await client.close()
