"""A real hub's GPU service against whoever means it harm: every route for every caller, and what bodies tell."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field

import pytest

from jupyter_gpushare.demo.servers import wait_for
from tests.hub import bed as beds
from tests.hub.bed import ask
from tests.routes import CALLERS, OUTSIDERS, TABLE, operations

pytestmark = [
    pytest.mark.xdist_group("hub"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(beds.missing() is not None, reason=str(beds.missing())),
]
KERNEL, SIBLING, STRANGER = "kernel-of-alice-7f3a", "second-of-alice-91bc", "kernel-of-bob-55aa"
LABEL, PATH, ORIGIN = "salaries-draft.ipynb", "clinic/salaries-draft.ipynb", "origin-of-alice-c0ffee"
SECRETS = (KERNEL, SIBLING, LABEL, "clinic", ORIGIN, "alice")


def says(user: str, role: str, session: str | None = None, origin: str | None = None, **more) -> dict[str, str]:
    named = {"user": user, "role": role, "session": session, "origin": origin, **more}
    return {"X-GPUShare-Caller": json.dumps(named)}


@dataclass
class Desk:
    """What each of CALLERS asks with, and all that outsiders were answered."""

    bed: beds.Bed
    tokens: dict[str, str]
    said: list[tuple[str, str]] = field(default_factory=list)  # (what was asked, the answer)

    @property
    def api(self) -> str:
        return f"{self.bed.service_url}api/v1/"

    def headers(self, caller: str) -> dict[str, str]:
        who = {
            "another user's server": ("bob", says("bob", "server", origin="origin-of-bob", admin=True)),
            "another user's kernel": ("bob", says("bob", "kernel", session=STRANGER, admin=True)),
            "another kernel of the owner": ("alice", says("alice", "kernel", session=SIBLING)),
            "its own kernel": ("alice", says("alice", "kernel", session=KERNEL)),
            "owner's server": ("alice", says("alice", "server", origin=ORIGIN)),
            "another user": ("bob", {}),
            "owner": ("alice", {}),
            "reader": ("watcher", {}),
            "admin": ("boss", {}),
            "made-up token": ("made-up", {}),
            "nobody": ("nobody", {}),
        }
        name, headers = who[caller]
        token = {"made-up": "0123456789abcdef", "nobody": None}.get(name) or self.tokens.get(name)
        return headers | ({"Authorization": f"token {token}"} if token else {})

    def ask(self, caller: str, method: str, path: str, body: object = None) -> int:
        """The status; the answer to an outsider is kept."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api + path, data, self.headers(caller), method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read1(1 << 20).decode() if path == "events" else answer.read().decode()
        if caller in OUTSIDERS:
            self.said.append((f"{caller}: {method} {path} {json.dumps(body)}", text))
        return answer.status

    def open(self, name: str = KERNEL, user: str = "alice", label: str = LABEL, path: str | None = PATH) -> None:
        """A session of a user's server, without a process."""
        origin = ORIGIN if user == "alice" else f"origin-of-{user}"
        body = {"id": name, "user": user, "origin": origin, "label": label, "path": path}
        headers = says(user, "server", origin=origin)
        ask("PUT", f"{self.api}sessions/{name}", self.tokens[user], body, headers)

    def seen(self) -> dict:
        """What of the session only its owner may change."""
        view = ask("GET", f"{self.api}sessions/{KERNEL}", self.tokens["alice"])
        kept = {name: view[name] for name in ("user", "label", "path", "demand")}
        return kept | {"pinned": view["pinned_until_s"] is not None}


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    """Sessions here have no server that says they live: they are let live for as long as the tests take."""
    with beds.hub(tmp_path_factory.mktemp("hub"), more="c.GPUShare.lease_ttl_s = 3600") as running:
        yield running


@pytest.fixture(scope="module")
def desk(bed):
    desk = Desk(bed, {name: bed.user(name).token for name in ("alice", "bob", "boss", "watcher")})
    desk.open()
    desk.open(SIBLING, label="second.ipynb", path="clinic/second.ipynb")
    desk.open(STRANGER, "bob", "bobs.ipynb", "bobs.ipynb")
    return desk


@pytest.fixture(scope="module")
def overheard(desk):
    """The raw text of bob's event stream, from before anything is tried."""
    got, url = bytearray(), f"{desk.api}events"
    answer = urllib.request.urlopen(urllib.request.Request(url, headers=desk.headers("another user")), timeout=60)

    def listen() -> None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            while piece := answer.read1(1 << 16):
                got.extend(piece)

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    yield got
    with contextlib.suppress(OSError):  # closing alone would wait for the reader
        answer.fp.raw._sock.shutdown(socket.SHUT_RDWR)
    listening.join(10)
    answer.close()


def test_every_route_of_the_openapi_document_has_a_row_and_every_row_a_route(desk):
    document = ask("GET", f"{desk.api}openapi.json", desk.tokens["bob"])
    assert operations(document) == set(TABLE)


@pytest.mark.parametrize("row", TABLE)
def test_each_caller_is_answered_what_the_table_says_and_the_refused_change_nothing(desk, overheard, row):
    method, template = row.split(" /")
    uuid = ask("GET", f"{desk.api}status", desk.tokens["boss"])["servers"][0]["devices"][0]["uuid"]
    desk.open()
    before = desk.seen()
    wrong = []
    for caller in CALLERS:
        path = template.format(
            id=KERNEL, uuid=uuid, path="a.ipynb", origin="origin-of-bob" if "user's" in caller else ORIGIN
        )
        body = None if method == "GET" else dict(TABLE[row].body)
        if row == "PUT /sessions/{id}":
            user = "alice" if caller == "owner's server" else "bob"
            body |= {"id": KERNEL, "user": user, "origin": ORIGIN if user == "alice" else "origin-of-bob"}
        status, expected = desk.ask(caller, method, path, body), TABLE[row].expected(caller)
        allowed = 200 <= status < 300 or status in (404, 409)
        if not (allowed if expected == "*" else status == int(expected)):
            wrong.append(f"{caller}: {status}, not {expected}")
        if expected == "403" and desk.seen() != before:
            wrong.append(f"{caller} changed it")
        if expected != "403":
            desk.open()
            before = desk.seen()
    if method == "POST" and template.endswith("drain"):
        desk.ask("admin", "POST", f"devices/{uuid}/undrain")
    assert not wrong


def test_no_answer_to_an_outsider_tells_anything_of_another_user(desk, overheard):
    """After the table, and for the questions that ask for somebody else by name."""
    for path in (
        "status", "history", f"history?session={KERNEL}", "history?user=alice", f"history?session={KERNEL}&user=bob",
        f"sessions/{KERNEL}", f"sessions/{KERNEL}/why", "events", "doctor",
    ):  # fmt: skip
        for caller in OUTSIDERS:
            desk.ask(caller, "GET", path)
    desk.ask("another user", "POST", "estimate", {"gpus": 2, "near": [f"session:{KERNEL}"]})
    ask("POST", f"{desk.api}sessions/{KERNEL}/request", desk.tokens["alice"], {"gpus": 0.3})
    wait_for("bob's stream goes on", lambda: b"event: patch" in overheard, 30)

    told = [*desk.said, ("another user's stream", overheard.decode())]
    assert len(told) > 50
    for asked, text in told:
        leaked = [secret for secret in SECRETS if secret in text and secret not in asked]
        assert not leaked, (asked, leaked, text[:600])
