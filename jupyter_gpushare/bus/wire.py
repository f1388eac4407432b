"""What travels on a bus between machines: versioned JSON, refused in words where it cannot be read."""

from __future__ import annotations

import string
from typing import Any

import msgspec

from .._version import __version__
from ..model import CommandResult

PROTOCOL = 1  # raised when a message means something else than before; new fields need no new number
OLDEST = 1  # the oldest that is still understood
PLAIN = frozenset(string.ascii_letters + string.digits + "-_")


class Envelope(msgspec.Struct, frozen=True):
    """`v`: the protocol, `by`: the sender's version, for people; `term`: of the leader that commands, 0 without one."""

    v: int
    body: msgspec.Raw
    by: str = ""
    term: int = 0


class Unreadable(Exception):
    """A message that is not acted upon, and why: what its sender is answered."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.answer = CommandResult(ok=False, reason=reason, message=message)


def token(name: str) -> str:
    """A server's name as one token of a subject and as a key; different names stay different."""
    return "".join(one if one in PLAIN else "".join(f"={byte:02X}" for byte in one.encode()) for one in name)


def sealed(body: object, term: int = 0) -> bytes:
    return msgspec.json.encode(Envelope(PROTOCOL, msgspec.Raw(msgspec.json.encode(body)), __version__, term))


def opened(data: bytes, kind: Any) -> tuple[Any, int]:
    """(body as `kind`, term). Raises Unreadable: `version` for a sender too new or too old, else `malformed`."""
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable("malformed", f"This is no message of ours: {error}.") from None
    if not OLDEST <= envelope.v <= PROTOCOL:
        side = "older" if envelope.v < OLDEST else "newer"
        raise Unreadable(
            "version",
            f"Version {envelope.by or '?'} speaks protocol {envelope.v}, {side} than what {__version__} understands "
            f"({OLDEST} to {PROTOCOL}). Bring both to one version.",
        )
    try:
        return msgspec.json.decode(envelope.body, type=kind), envelope.term
    except (msgspec.DecodeError, RecursionError) as error:
        words = f"Version {__version__} cannot read what version {envelope.by or '?'} says: {error}."
        raise Unreadable("malformed", words) from None
