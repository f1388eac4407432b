"""The hub's groups as `Policy.groups`: who is in which, and by which weight they share."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from tornado.httpclient import AsyncHTTPClient, HTTPError, HTTPRequest

from ..errors import Unavailable

log = logging.getLogger(__name__)
WEIGHT = "gpushare_weight"  # a property of a hub's group
PAGINATED = "application/jupyterhub-pagination+json"
ANSWER_S = 10.0


class Group(msgspec.Struct, frozen=True):
    """A hub's group, what counts here of it."""

    name: str
    users: tuple[str, ...] = ()
    properties: dict[str, Any] = {}


class _Next(msgspec.Struct):
    offset: int


class _Pages(msgspec.Struct):
    next: _Next | None = None


class _Page(msgspec.Struct, rename={"pages": "_pagination"}):
    items: tuple[Group, ...]
    pages: _Pages


async def asked(api_url: str, token: str) -> tuple[Group, ...]:
    """All groups of the hub. Raises Unavailable where it does not answer, or not as expected."""
    found: list[Group] = []
    headers = {"Authorization": f"token {token}", "Accept": PAGINATED}
    offset: int | None = 0
    while offset is not None:
        url = f"{api_url.rstrip('/')}/groups?offset={offset}"
        try:
            answer = await AsyncHTTPClient().fetch(HTTPRequest(url, headers=headers, request_timeout=ANSWER_S))
            page = msgspec.json.decode(answer.body, type=_Page)
        except (HTTPError, OSError, msgspec.DecodeError) as error:
            raise Unavailable(f"The hub's groups cannot be read ({error}); those read before count on.") from error
        found += page.items
        offset = None if page.pages.next is None else page.pages.next.offset
    return tuple(found)


def merged(configured: Mapping[str, Mapping[str, Any]], groups: Iterable[Group]) -> dict[str, dict[str, Any]]:
    """`Policy.groups` with the hub's: its members and those configured; the configured weight, else the hub's."""
    table = {name: dict(entry) for name, entry in configured.items()}
    for group in groups:
        entry = table.setdefault(group.name, {})
        entry["members"] = list(dict.fromkeys([*entry.get("members", ()), *group.users]))
        if "weight" not in entry:
            entry["weight"] = _weight(group)
    return table


def _weight(group: Group) -> float:
    """By the group's property, 1 without or where it is not usable: one group's slip must not cost all the others."""
    weight = group.properties.get(WEIGHT, 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.0 < weight < float("inf"):
        log.warning("Group %s: its property %s is not a number above 0 (%r); it counts 1.", group.name, WEIGHT, weight)
        return 1.0
    return float(weight)
