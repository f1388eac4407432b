"""A real hub's GPU service against whoever means it harm: every route for every caller, and what bodies tell."""

from __future__ import annotations

import contextlib
import http.client
import http.cookiejar
import json
import re
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jupyter_gpushare.demo.servers import wait_for
from tests.hub import bed as beds
from tests.hub.bed import ask
from tests.routes import CALLERS, OUTSIDERS, TABLE, operations

pytestmark = [
    pytest.mark.timeout(180),
    beds.WHERE_POSSIBLE,
]
ROOT = Path(__file__).parents[2]
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
    with contextlib.suppress(OSError, AttributeError):  # closing alone would wait for the reader; it may have ended
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
        "status", "readings", "history", f"history?session={KERNEL}", "history?user=alice",
        f"history?session={KERNEL}&user=bob",
        f"sessions/{KERNEL}", f"sessions/{KERNEL}/why", "events", "doctor",
    ):  # fmt: skip
        for caller in OUTSIDERS:
            desk.ask(caller, "GET", path)
    desk.ask("another user", "POST", "estimate", {"gpus": 2, "near": [f"session:{KERNEL}"]})
    desk.open()
    desk.ask("owner", "POST", f"sessions/{KERNEL}/request", {"gpus": 0.3})
    wait_for("bob's stream goes on", lambda: b"event: patch" in overheard, 30)

    told = [*desk.said, ("another user's stream", overheard.decode())]
    assert len(told) > 40
    for asked, text in told:
        leaked = [secret for secret in SECRETS if secret in text and secret not in asked]
        assert not leaked, (asked, leaked, text[:600])


# --- the page, headers, and what a browser may be made to do ---


def raw(
    desk: Desk, path: str, method: str = "GET", data: bytes | None = None, **headers: str
) -> tuple[int, dict, bytes]:
    """(status, headers, body) of a path below the hub's root, redirects not followed."""
    parts = urlsplit(desk.bed.root)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        connection.request(
            method, f"{parts.path}{path}", data, {name.replace("_", "-"): v for name, v in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "page/built/page.js",
        "page/none.js",
        "page/..%2f..%2frun.py",
        "api/v1/status",
        "api/v1/none",
        "oauth_callback",
        "none",
        "api",
    ],
)
def test_whatever_the_service_answers_carries_the_headers_that_keep_a_browser_safe(desk, path):
    for token in (None, desk.tokens["alice"]):
        authorization = {} if token is None else {"Authorization": f"token {token}"}
        status, headers, body = raw(desk, f"services/gpushare/{path}", **authorization)
        assert status < 500
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'self'" in policy
        assert "unsafe" not in policy
        assert "access-control-allow-origin" not in headers
        assert b"Traceback" not in body
        if path.startswith("api/v1/"):
            assert headers["cache-control"] == "no-store"


def test_the_page_has_no_script_or_style_of_its_own_so_that_the_policy_holds(desk):
    _, _, page = raw(desk, "services/gpushare/", Authorization=f"token {desk.tokens['alice']}")
    text = page.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", text) == []
    sources = [path for path in (ROOT / "labextension" / "src").rglob("*.ts*") if path.parent.name != "__tests__"]
    assert len(sources) > 50
    unsafe = r"innerHTML|InnerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function"
    assert [path.name for path in sources if re.search(unsafe, path.read_text())] == []


def test_a_token_in_a_url_lets_nobody_in(desk):
    """It would stand in logs and histories."""
    status, _, body = raw(desk, f"services/gpushare/api/v1/status?token={desk.tokens['boss']}")
    assert status == 403, body


def test_no_token_is_in_the_hubs_or_the_services_log(desk, bed):
    for caller in CALLERS:
        desk.ask(caller, "POST", "sessions/none/pin", {"for_s": "x"})
    assert [name for name, token in desk.tokens.items() if token in bed.log] == []


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_another_site_changes_nothing_with_a_cookie_alone(desk, bed, origin):
    """A form or script elsewhere sends the browser's cookies, not the token, and may not read answers."""
    browser, jar = logged_in(bed, "alice")
    cookies = "; ".join(f"{one.name}={one.value}" for one in jar if one.path in ("/services/gpushare/", "/"))
    assert "service-gpushare" in cookies or "jupyterhub-session-id" in cookies
    before = desk.seen()
    for site in ("cross-site", "same-site"):
        headers = {"Cookie": cookies, "Origin": origin, "Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors"}
        for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
            path = f"services/gpushare/api/v1/sessions/{KERNEL}/pin"
            status, answered, _ = raw(desk, path, "POST", b'{"for_s": 60}', Content_Type=kind, **headers)
            assert status == 403
            assert "access-control-allow-origin" not in answered
        status, _, body = raw(desk, "services/gpushare/api/v1/status", Sec_Fetch_Dest="script", **headers)
        assert status == 403, body[:200]
    assert desk.seen() == before
    assert browser


def logged_in(bed: beds.Bed, name: str) -> tuple[urllib.request.OpenerDirector, http.cookiejar.CookieJar]:
    """A browser that went through the hub's login to the page."""
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with browser.open(f"{bed.root}hub/login") as answer:
        token = re.search(r'name="_xsrf" value="([^"]+)"', answer.read().decode())[1]
    form = urllib.parse.urlencode({"username": name, "password": "x", "_xsrf": token}).encode()
    browser.open(f"{bed.root}hub/login?next=%2Fhub%2Fhome", form).close()
    browser.open(bed.service_url).close()
    return browser, jar


# --- what is too much ---


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("[" * 10_000, "Expected `object`"),
        ('{"user": "bob", "x": ' + "[" * 10_000, "nested deeper"),
        ("{", "truncated"),
        ('{"user": "b\\u0000ob"}', "NUL"),
        ('{"user": "bob", "role": "root"}', "role"),
    ],
    ids=["deep", "deep below", "cut", "NUL", "no such role"],
)
def test_a_header_made_to_harm_is_refused_in_one_line(desk, named, said):
    headers = {"Authorization": f"token {desk.tokens['bob']}", "X_GPUShare_Caller": named}
    status, _, body = raw(desk, "services/gpushare/api/v1/status", **headers)
    assert status == 400
    message = json.loads(body)["message"]
    assert said in message
    assert "\n" not in message


def test_an_event_id_of_any_length_starts_the_stream_anew(desk):
    for last in ("9" * 6000, "-1", "x", "9" * 20):
        request = urllib.request.Request(f"{desk.api}events", headers=desk.headers("another user"))
        request.add_header("Last-Event-ID", last)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.readline() == b"event: status\n"


@pytest.mark.parametrize("megabytes", [1.5, 4])
@pytest.mark.parametrize("known", [True, False], ids=["a user", "nobody"])
def test_a_body_that_is_too_large_is_refused_and_the_service_answers_on(desk, megabytes, known):
    """Straight to the service, as a user's server asks it: no proxy in between that might refuse it first."""
    body = b'{"gpus": 0.1, "near": ["' + b"x" * int(megabytes * 2**20) + b'"]}'
    headers = {"Authorization": f"token {desk.tokens['bob']}"} if known else {}
    connection = http.client.HTTPConnection("127.0.0.1", desk.bed.ports["service"], timeout=30)
    with contextlib.closing(connection):
        try:
            connection.request("POST", "/services/gpushare/api/v1/estimate", body, headers)
            answer = connection.getresponse()
        except (BrokenPipeError, ConnectionResetError):
            assert megabytes > 2  # refused and closed while it was still being sent
        else:
            assert answer.status == (400 if known or megabytes > 2 else 403)
            answer.read()
    assert desk.ask("another user", "GET", "status") == 200


def test_headers_without_end_are_refused(desk):
    place, refused = ("127.0.0.1", desk.bed.ports["service"]), b""
    with socket.create_connection(place, timeout=30) as one, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        one.sendall(b"GET /services/gpushare/api/v1/status HTTP/1.1\r\nHost: x\r\n")
        for number in range(200):
            one.sendall(b"X-%d: %b\r\n" % (number, b"y" * 1000))
        refused = one.recv(100)
    assert refused[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 431")
    assert desk.ask("another user", "GET", "status") == 200
