"""Every route with a body it takes, and what each kind of caller is answered: the table of the security tests.

The routes themselves come from the OpenAPI document, so that a new one without a row fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CALLERS = (
    "nobody", "made-up token", "another user", "another user's server", "another user's kernel",
    "another kernel of the owner", "its own kernel", "owner", "owner's server", "reader", "admin",
)  # fmt: skip
OUTSIDERS = CALLERS[:5]  # who must not learn anything of the owner


@dataclass(frozen=True)
class Row:
    """One method of one path. `answers`: an HTTP status for each of CALLERS; "*": allowed, whatever the state says."""

    answers: str
    body: dict[str, Any] = field(default_factory=dict)

    def expected(self, caller: str) -> str:
        return dict(zip(CALLERS, self.answers.split(), strict=True))[caller]


#          nobody  fake  other  o-srv  o-ker  sibling own  owner  server reader admin
READS = "  403     403   403    403    403    403     200  200    200    200    200"
ACTS = "   403     403   403    403    403    403     *    *      *      403    *"
POOL = "   403     403   403    403    403    403     *    *      *      *      *"
ALL = "    403     403   200    200    200    200     200  200    200    200    200"
OWN = "    403     403   200    200    403    403     403  200    200    200    200"  # about the caller's own
DEVICE = " 403     403   403    403    403    403     403  403    403    200    200"
ADMIN = "  403     403   403    403    403    403     403  403    403    403    *"
KERNEL = " 403     403   403    403    403    403     *    403    *      403    403"
SERVER = " 403     403   403    403    403    403     403  403    *      403    403"
SERVERS = "403     403   403    200    403    403     403  403    200    403    403"

TABLE = {
    "GET /status": Row(ALL),
    "GET /events": Row(ALL),
    "GET /doctor": Row(ALL),
    "GET /history": Row(ALL),
    "GET /readings": Row(ALL),
    "GET /openapi.json": Row(ALL),
    "POST /estimate": Row(ALL, {"gpus": 1}),
    "POST /choose": Row(OWN, {"gpus": 0.2}),
    "PUT /demands/{path}": Row(OWN, {"gpus": 0.2}),
    "GET /sessions/{id}": Row(READS),
    "GET /sessions/{id}/why": Row(READS),
    "POST /sessions/{id}/request": Row(ACTS, {"gpus": 0.2}),
    "POST /sessions/{id}/release": Row(ACTS),
    "POST /sessions/{id}/park": Row(ACTS),
    "POST /sessions/{id}/resume": Row(ACTS),
    "POST /sessions/{id}/pin": Row(ACTS, {"for_s": 60}),
    "POST /sessions/{id}/unpin": Row(ACTS),
    "POST /sessions/{id}/move": Row(ACTS, {"device": "GPU-none"}),
    "POST /sessions/{id}/stop": Row(ACTS),
    "GET /sessions/{id}/pool": Row(POOL),
    "POST /sessions/{id}/pool": Row(ACTS, {"gpus": 2}),
    "POST /sessions/{id}/pool/start": Row(ACTS, {"cmd": ["true"], "cwd": "/"}),
    "POST /sessions/{id}/pool/end": Row(ACTS),
    "GET /devices/{uuid}": Row(DEVICE),
    "POST /devices/{uuid}/drain": Row(ADMIN),
    "POST /devices/{uuid}/undrain": Row(ADMIN),
    "POST /devices/{uuid}/inject": Row(ADMIN, {"fault": "none"}),
    "PUT /sessions/{id}": Row(SERVER, {"label": "x"}),
    "POST /sessions/{id}/started": Row(SERVER, {"pid": 2**31 - 1, "started": 1.0}),
    "POST /sessions/{id}/burst": Row(SERVER, {"phase": "start"}),
    "POST /sessions/{id}/ended": Row(SERVER, {"why": "cleanup"}),
    "POST /servers/{origin}/alive": Row(SERVERS, {"sessions": []}),
    "POST /sessions/{id}/hello": Row(KERNEL),
    "POST /sessions/{id}/admit": Row(KERNEL, {"wait_s": 0.0}),
    "POST /sessions/{id}/leave": Row(KERNEL),
    "POST /sessions/{id}/simulate": Row(KERNEL, {"seconds": 0.1}),
}


def operations(document: dict[str, Any]) -> set[str]:
    """METHOD /path of all that an OpenAPI document describes."""
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
