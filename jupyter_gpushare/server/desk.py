"""Where a kernel's provisioner turns to: the server's own desk, or one that a plain script makes for itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..model import Binding, SessionSpec
from .activity import Phase
from .kernels import Terms

if TYPE_CHECKING:
    from .elsewhere import Elsewhere

DESK = "gpushare_desk"  # in the web application's settings; None there: this server manages no devices


class Desk(Protocol):
    """What kernels.py offers."""

    terms: Terms
    root: str
    watches: bool  # cells are seen one by one
    elsewhere: Elsewhere | None  # other machines on which kernels may run; None: there are none

    def path_of(self, session: str) -> str | None: ...

    async def open(self, spec: SessionSpec) -> Binding: ...

    def environment(self, session: str, inherited: Mapping[str, str], *, elsewhere: bool) -> dict[str, str]: ...

    async def started(self, session: str, pid: int, created: float | None) -> None: ...

    async def ended(self, session: str, why: Literal["cleanup", "dead"]) -> None: ...

    def burst_seen(self, session: str, phase: Phase) -> None: ...

    def ended_seen(self, session: str, why: Literal["cleanup", "dead"]) -> None: ...


async def desk_of(manager: Any, log: logging.Logger) -> Desk | None:
    """The desk for a kernel manager's kernels; None where their GPUs are not managed.

    Under a Jupyter server with our extension it is that server's; otherwise (nbclient, papermill) the process's own.
    """
    above = manager
    while above is not None:
        settings = getattr(getattr(above, "web_app", None), "settings", {})
        if DESK in settings:
            return settings[DESK]
        above = getattr(above, "parent", None)
    from .standalone import own_desk

    return await own_desk(log)
