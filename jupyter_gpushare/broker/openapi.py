"""The OpenAPI 3.1 description of the REST interface, made from the route table and its types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from .._version import __version__

if TYPE_CHECKING:
    from .api import Route

Document = dict[str, Any]
REF = "#/components/schemas/{name}"


class Error(msgspec.Struct, frozen=True):
    """What went wrong, for people, and its short name, for programs."""

    message: str
    reason: str


PARAMETERS = {
    "id": "Kernel id.",
    "path": "Path of a notebook under the server's root; it may hold slashes.",
    "uuid": "UUID of a GPU or a MIG instance.",
    "origin": "Name of a single-user server.",
}
QUERIES: dict[str, dict[str, tuple[str, str]]] = {  # path -> name -> type, what it is
    "status": {"since": ("integer", "Answers 204 while `rev` is still this one.")},
    "history": {
        "session": ("string", "Only this session."),
        "user": ("string", "Only this user; another than oneself needs the admin scope."),
        "from": ("number", "Begin, seconds since 1970; seven days before the end by default."),
        "to": ("number", "End, seconds since 1970; now by default."),
    },
    "readings": {
        "device": ("string", "Only this device, by its UUID."),
        "server": ("string", "Only the devices of this server; by default those of all, taken together."),
    },
}
FAILURES = {
    400: "A field is not usable; the message names it.",
    403: "Somebody else's session, or an admin's verb.",
    404: "No such session, device or server.",
    405: "The path takes other methods; the header Allow names them.",
    409: "It does not go with the present state.",
    503: "A part this needs is away; it comes back by itself.",
}
ROLES = {
    "user": "Any user, about their own sessions; an admin about all.",
    "kernel": "A session's own kernel.",
    "server": "A single-user server, about its user's sessions.",
    "admin": "Admins only.",
}
SECURITY = {
    "token": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "`token <token>`: a user's token of this Jupyter server or hub, or a session's own capability.",
    },
    "xsrf": {
        "type": "apiKey",
        "in": "header",
        "name": "X-XSRFToken",
        "description": "For requests that are authenticated by cookie and change something.",
    },
}
EVENTS = {
    "get": {
        "operationId": "get_events",
        "summary": "What changes, as server-sent events",
        "description": (
            "Events `status` (a whole view, its lists as maps), `patch` (a JSON merge patch against the one before), "
            "`decision` and `warning`. Their id is `rev`; a client that comes back sends the last one it saw."
        ),
        "tags": ["user"],
        "parameters": [
            {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "integer"}},
        ],
        "responses": {"200": {"description": "A stream.", "content": {"text/event-stream": {}}}},
    }
}


def build(routes: Iterable[Route], version: str = __version__) -> Document:
    """The document, with paths relative to `…/gpushare/api/v1/`."""
    routes = tuple(routes)
    types = [kind for route in routes for kind in (_body(route), route.answer) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, Error], ref_template=REF)
    schema = dict(zip([*types, Error], schemas, strict=True))
    paths: dict[str, Document] = {"/events": EVENTS}
    for route in routes:
        paths.setdefault(f"/{route.path}", {})[route.method.lower()] = _operation(route, schema)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jupyter-gpushare",
            "version": version,
            "description": (
                "GPU shares of notebook sessions. Unknown values are null; sizes are bytes, durations seconds, shares "
                "and utilisation fractions 0..1. Operations tagged `internal` may change with any version."
            ),
            "license": {"name": "BSD-3-Clause", "identifier": "BSD-3-Clause"},
        },
        "servers": [
            {
                "url": "{base_url}gpushare/api/v1",
                "description": "Under a Jupyter server; under a hub `/services/gpushare/api/v1`.",
                "variables": {"base_url": {"default": "/"}},
            }
        ],
        "tags": [{"name": role, "description": text} for role, text in ROLES.items()]
        + [{"name": "internal", "description": "Between parts of jupyter-gpushare."}],
        "security": [{"token": []}, {"xsrf": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SECURITY},
    }


def _body(route: Route) -> type[msgspec.Struct] | None:
    """The type of its body, None for one without fields."""
    return route.body if route.body.__struct_fields__ else None


def _operation(route: Route, schema: dict[Any, Document]) -> Document:
    body = _body(route)
    names = re.findall(r"{(\w+)}", route.path)
    done: Document = {"description": HTTPStatus(route.status).phrase}
    if route.answer is not None:
        done["content"] = _json(schema[route.answer])
    empty = route.answer is None and route.path not in ("openapi.json", "doctor")
    operation: Document = {
        "operationId": "_".join([route.method.lower(), *re.findall(r"\w+", route.path)]),
        "tags": [route.role, *(["internal"] if route.internal else [])],
        "parameters": [_parameter(name, "path", "string", PARAMETERS[name]) for name in names]
        + [_parameter(name, "query", *facts) for name, facts in QUERIES.get(route.path, {}).items()],
        "responses": {"204" if empty else str(route.status): done}
        | {str(status): {"description": text, "content": _json(schema[Error])} for status, text in FAILURES.items()},
    }
    if route.summary:
        operation["summary"] = route.summary
    if body is not None:
        operation["requestBody"] = {"content": _json(schema[body])}
    return operation


def _parameter(name: str, place: str, kind: str, text: str) -> Document:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": kind}, "description": text}


def _json(schema: Document) -> Document:
    return {"application/json": {"schema": schema}}
