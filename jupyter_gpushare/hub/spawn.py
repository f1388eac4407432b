"""The spawner hooks: a user's server learns where its GPU service is, and starts on the GPU server that suits it.

The service chooses, asked with the token of the server that is about to start: as its user, with no other right.
Whatever goes wrong here, the server starts, unchanged, and one line in the hub's log says why.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from traitlets import TraitError

from ..errors import BadDemand
from ..server.chosen import VARIABLE, as_text
from . import form
from .changes import Change, Made, make, unmake
from .form import Asked
from .spawners import ON_ONE_MACHINE, Chosen, applier, told, unknown

NAME = "gpushare"
URL = "http://127.0.0.1:8815"  # where the service listens: user servers and the hub's proxy reach it there
PREFIX = f"/services/{NAME}/"
ANSWER_S = 5.0  # so long a spawn waits for the service's choice; with all else it must stay below 10 s
ANSWER_BYTES = 1 << 18
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")  # what may go into a script or a manifest
Hook = Callable[[Any], Any]

_made: WeakKeyDictionary[Any, list[Made]] = WeakKeyDictionary()  # by spawner, until its server has stopped
_chosen: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # the server that was chosen, by spawner
_failed: dict[tuple[str, str], str] = {}  # where a user's server failed to start last, until it is started again
_unknown: set[type] = set()  # classes it was said of that nothing is known of them


class Choice(msgspec.Struct, frozen=True):
    """The service's answer, what counts here of it."""

    server: str | None
    machine: bool
    gpus: float
    model: str | None = None


async def pre_spawn_hook(
    spawner: Any,
    *,
    url: str = URL,
    connect_url: str = "",
    gpu_resource: str = "",
    before: Hook | None = None,
) -> None:
    """Changes the spawner for the GPU server that suits this user's server; `post_stop_hook` takes that back.

    `url` is where the hub reaches the service, `connect_url` where users' servers do, if that differs. With
    `gpu_resource`, GPUs that were chosen for this server are requested of what starts it, under that name. `before`: a
    hook that was there already, run first; what it sets wins.
    """
    undo(spawner)  # of a spawn before, whose end nobody told
    await _run(before, spawner)
    base = urlsplit(getattr(getattr(spawner, "hub", None), "base_url", "") or "/hub/").path.removesuffix("hub/")
    asked = _asked(spawner)
    variables = {"GPUSHARE_BROKER_URL": broker_url(connect_url or url, base)}
    if asked is not None:
        variables[VARIABLE] = as_text(asked.gpus, asked.model)
    _change(spawner, told(type(spawner), variables))
    if asked is not None and asked.gpus == 0:
        return
    applies, chosen = applier(type(spawner)), Chosen("", 0.0 if asked is None else asked.gpus, gpu_resource)
    if applies in ON_ONE_MACHINE:
        _change(spawner, applies(chosen))
        return
    if not applies(chosen) or not getattr(spawner, "api_token", ""):  # nothing to choose, nobody to ask as
        return
    choice = await _choice(spawner, f"{broker_url(url, base)}api/v1/choose", asked)
    if choice is not None:
        _apply(spawner, choice, chosen)


async def post_stop_hook(spawner: Any, *, before: Hook | None = None) -> None:
    """Takes back what `pre_spawn_hook` changed: after a stop, and after a spawn that failed. `before` runs first.

    Where a spawn failed, the next one of that server goes elsewhere, if it can.
    """
    server = _chosen.pop(spawner, None)
    spawning = getattr(spawner, "_spawn_future", None)  # done, where the server had started
    if server is not None and spawning is not None and not spawning.done():
        _failed[_key(spawner)] = server
    try:
        await _run(before, spawner)
    finally:
        undo(spawner)


def undo(spawner: Any) -> None:
    """The spawner as it was before `pre_spawn_hook`; what others changed since stays."""
    unmake(spawner, _made.pop(spawner, []))


def broker_url(url: str, base: str = "/") -> str:
    """Where the service answers, below a hub with that base URL."""
    return f"{url.rstrip('/')}{base.rstrip('/')}{PREFIX}"


async def _run(hook: Hook | None, spawner: Any) -> None:
    ran = hook(spawner) if hook is not None else None
    if inspect.isawaitable(ran):
        await ran


def _asked(spawner: Any) -> Asked | None:
    """What was chosen for this server on the hub's page or by its API; None where nothing usable was."""
    entry = form.sent(spawner)
    try:
        if entry is None:
            return form.asked_in(getattr(spawner, "user_options", None) or {})
        asked = form.asked_in({form.KEY: entry})
    except BadDemand as error:
        spawner.log.warning("%s: the chosen GPU is not used: %s", _name(spawner), error)
        return None
    form.keep(spawner, entry)
    return asked


async def _choice(spawner: Any, url: str, asked: Asked | None) -> Choice | None:
    """What the service chooses, None where it does not answer in time, or not with a choice."""
    ask: dict[str, Any] = {"singleuser": getattr(spawner, "name", "") or ""}
    if asked is not None:
        ask |= {"gpus": asked.gpus, "constraints": {"model": asked.model}}
    hosts = getattr(spawner, "remote_hosts", None)
    if isinstance(hosts, list) and hosts:
        names = [name for host in map(str, hosts) for name in (host, host.split(".")[0])]
        ask["among"] = list(dict.fromkeys(names))
    avoid = _failed.pop(_key(spawner), None)
    if avoid is not None:
        ask["avoid"] = avoid
    folder = _folder(spawner)
    if folder:
        ask["near"] = [f"data:{folder}"]
    client = SimpleAsyncHTTPClient(force_instance=True, max_body_size=ANSWER_BYTES)
    request = HTTPRequest(
        url,
        method="POST",
        headers={"Authorization": f"token {spawner.api_token}", "Content-Type": "application/json"},
        body=msgspec.json.encode(ask),
        connect_timeout=ANSWER_S,
        request_timeout=ANSWER_S,
        follow_redirects=False,
    )
    try:
        answer = await asyncio.wait_for(client.fetch(request), ANSWER_S + 1.0)
        return msgspec.json.decode(answer.body, type=Choice)
    except (HTTPError, OSError, ValueError, asyncio.TimeoutError, msgspec.MsgspecError) as error:
        said = _said(error)
        spawner.log.warning("%s: no GPU server was chosen, the spawn goes on without: %s", _name(spawner), said)
        return None
    finally:
        client.close()


def _said(error: Exception) -> str:
    """The service's own sentence where there is one."""
    response = getattr(error, "response", None)
    try:
        said = str(msgspec.json.decode(response.body)["message"]) if response is not None else repr(error)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        said = repr(error)
    return " ".join(said.split())[:300]


def _folder(spawner: Any) -> str:
    """Where the user's notebooks lie, as far as the configuration says it; "" unknown."""
    folder = str(getattr(spawner, "notebook_dir", "") or "").replace("{username}", spawner.user.name)
    return folder if folder.startswith("/") and "{" not in folder else ""


def _apply(spawner: Any, choice: Choice, chosen: Chosen) -> None:
    kind = type(spawner)
    if choice.server is None:
        if choice.gpus > 0:
            spawner.log.info("%s: no GPU server suits %g GPUs now", _name(spawner), choice.gpus)
        return
    if not choice.machine:
        return
    if not HOST.fullmatch(choice.server):
        spawner.log.warning("%s: %r is no name of a machine, so it is not used", _name(spawner), choice.server)
        return
    applies = applier(kind)
    if applies is unknown and kind not in _unknown:
        _unknown.add(kind)
        spawner.log.info("%s: how it starts servers is not known here; it is only told the GPU server", kind.__name__)
    if _change(spawner, applies(replace(chosen, server=choice.server))):
        _chosen[spawner] = choice.server
        spawner.log.info("%s: %s (%.80r) suits it best", _name(spawner), choice.server, choice.model)


def _change(spawner: Any, changes: Iterable[Change]) -> bool:
    """Makes the changes, and says what was not changed and why. Whether there was anything to change."""
    try:
        made, kept = make(spawner, changes)
    except TraitError as error:
        spawner.log.warning("%s: not changed for GPUs: %s", _name(spawner), error)
        return False
    _made.setdefault(spawner, []).extend(made)
    if kept:
        spawner.log.info("%s: what is configured wins: %s", _name(spawner), "; ".join(kept))
    return bool(made)


def _key(spawner: Any) -> tuple[str, str]:
    return spawner.user.name, getattr(spawner, "name", "") or ""


def _name(spawner: Any) -> str:
    """The server in a line of the log."""
    name = getattr(spawner, "name", "")
    return f"{spawner.user.name}:{name}" if name else str(spawner.user.name)
