"""What is asked and told of a pool: its routes are in the table, its notebook's own server answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ..errors import Refused
from ..model import Name

if TYPE_CHECKING:
    from .api import Request


class PoolAsk(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of so many GPUs, all of them or none."""

    gpus: Annotated[int, msgspec.Meta(ge=1)]
    memory: int | str | None = None  # on each: bytes, or "20GiB"
    model: str | None = None


class PoolStart(msgspec.Struct, frozen=True, kw_only=True):
    """What runs on each of its devices: one process, which has that device alone in its mask.

    `{address}`, `{notebook}` and `{rank}` in the command and the environment stand for the address of the process's
    machine, that of the notebook's as seen from there, and its rank. `again`: one that ends is started again.
    """

    cmd: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    env: dict[str, str] = {}
    cwd: str
    again: bool = False


class PoolMember(msgspec.Struct, frozen=True, kw_only=True):
    server: Name
    here: bool  # on the machine of the notebook's server
    devices: tuple[str, ...]
    first: int  # rank of its first device; the others follow


class PoolLine(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    text: str


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """`state`: it waits for its devices, has them, processes run on them, or it ended (and `message` says why)."""

    session: str
    state: Literal["waiting", "ready", "running", "ended"]
    gpus: int
    members: tuple[PoolMember, ...] = ()
    queue_position: int | None = None
    eta_s: float | None = None
    message: str = ""
    lines: tuple[PoolLine, ...] = ()  # what its processes printed since `?since=`
    next: int = 0  # for the next `?since=`
    exits: dict[int, int] = {}  # rank -> exit code of its last end


def elsewhere(request: Request) -> PoolView:
    """Nobody but the notebook's server can start processes of its user. Raises as every route for somebody else's."""
    whose = request.session.id
    raise Refused(f"{whose}: pools are for kernels of a Jupyter server with the GPU service; here is none.")
