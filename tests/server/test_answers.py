"""Every refusal under the API is JSON with words for people and a short name for programs."""

from __future__ import annotations

import json

import pytest

from jupyter_gpushare.model import Caller
from jupyter_gpushare.server.client import Client
from jupyter_gpushare.server.socket import Door


@pytest.fixture
def refused(kernels, http_server_client, jp_base_url, jp_auth_header):
    """Asks a path as it is written; the answer's status, headers and JSON."""

    async def ask(path, method="GET", body=None, headers=jp_auth_header):
        answer = await http_server_client.fetch(
            f"{jp_base_url}gpushare/api/v1{path}",
            method=method,
            body=body,
            headers=dict(headers),
            allow_nonstandard_methods=True,
            raise_error=False,
        )
        assert answer.headers["Content-Type"].startswith("application/json")
        said = json.loads(answer.body)
        assert said.keys() == {"message", "reason"}
        assert all(isinstance(text, str) and text for text in said.values())
        return answer.code, said["reason"], answer

    return ask


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/status", "GET"),
        ("PATCH", "/demands/a.ipynb", "PUT"),
        ("POST", "/events", "GET"),
        ("GET", "/estimate", "POST"),
        ("DELETE", "/sessions/x", "GET, PUT"),
        ("PROPFIND", "/status", "GET, POST, PUT"),  # no handler sees it
    ],
)
async def test_a_method_that_a_path_does_not_take_is_answered_with_those_it_does(refused, method, path, allow):
    code, reason, answer = await refused(path, method)

    assert (code, reason, answer.headers["Allow"]) == (405, "wrong_method", allow)


async def test_head_is_not_taken_and_has_no_body(kernels, jp_fetch):
    answer = await jp_fetch("gpushare", "api", "v1", "status", method="HEAD", raise_error=False)

    assert (answer.code, answer.headers["Allow"], answer.body) == (405, "GET", b"")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
@pytest.mark.parametrize("path", ["", "/", "/no-such-thing", "/sessions", "/sessions/", "/demands/"])
async def test_a_path_that_is_not_there_is_not_found(refused, method, path):
    assert (await refused(path, method))[:2] == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "method", "body", "reason"),
    [
        ("/sessions/%ff", "GET", None, "bad_request"),
        ("/demands/%ff.ipynb", "PUT", b"{}", "bad_request"),
        ("/history?user=%ff", "GET", None, "bad_request"),
        ("/demands/a.ipynb", "PUT", b"\xff", "bad_demand"),
        ("/demands/a.ipynb", "PUT", b'{"kind": "\xff"}', "bad_demand"),
        ("/demands/a.ipynb", "PUT", b"[" * 100_000, "bad_demand"),
    ],
)
async def test_what_cannot_be_read_is_a_bad_request(refused, path, method, body, reason):
    assert (await refused(path, method, body))[:2] == (400, reason)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["", "/status", "/no-such-thing"])
async def test_who_is_not_logged_in_learns_that_and_nothing_else(refused, method, path):
    code, reason, answer = await refused(path, method, headers={})

    assert (code, reason) == (403, "not_allowed")
    assert b"DOCTYPE" not in answer.body


async def test_a_request_without_the_xsrf_token_is_refused_in_json(refused, jp_serverapp, monkeypatch):
    provider = jp_serverapp.identity_provider
    monkeypatch.setattr(provider, "get_user", provider.generate_anonymous_user)  # as with a login cookie

    code, reason, answer = await refused("/demands/a.ipynb", "PUT", b"{}", headers={})

    assert (code, reason) == (403, "not_allowed")
    assert "_xsrf" in json.loads(answer.body)["message"]


async def test_a_bug_is_answered_without_its_traceback(refused, extension, monkeypatch):
    async def broken(*_):
        raise RuntimeError("the traceback's own words")

    monkeypatch.setattr(extension.rooms.link, "call", broken)

    code, reason, answer = await refused("/status")

    assert (code, reason) == (500, "error")
    assert b"traceback's own words" not in answer.body


async def test_a_server_that_joined_answers_as_the_one_that_runs_the_broker(kernels, extension, refused, tmp_path):
    """Its requests go over the socket; what comes back loses nothing."""
    link = extension.rooms.link
    door = Door(tmp_path / "b.sock", link._port, extension.rooms.user)
    client = Client(f"unix://{tmp_path / 'b.sock'}")
    lead, leads = link._port, link.leads
    link._use(client)
    try:
        code, reason, answer = await refused("/sessions/x", "DELETE")
        assert (code, reason, answer.headers["Allow"]) == (405, "wrong_method", "GET, PUT")
        assert (await refused("/demands/a.ipynb", "PUT", b"[" * 100_000))[:2] == (400, "bad_demand")
        assert (await refused(""))[:2] == (404, "not_found")
        assert (await client.call(Caller(user="alice"), "GET", "status")).status == 200
    finally:
        link._use(lead, leads=leads)
        client.close()
        await door.close()
