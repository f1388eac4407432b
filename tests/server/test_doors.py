"""The REST interface on a real server: who may ask, how it answers, and that looking is not using."""

from __future__ import annotations

import json

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest

API = ("gpushare", "api", "v1")


def reason(caught) -> str:
    return json.loads(caught.value.response.body)["reason"]


async def test_status_lists_both_devices_under_an_escaped_base_url(gpu, until):
    status = await until(lambda: both(gpu))

    assert status["simulated"] is True
    assert status["admin"] is True
    assert status["mode"] == "embedded"


async def both(gpu):
    status = await gpu("status")
    return status if status["summary"]["devices"] == 2 else None


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (("demands", "a.ipynb"), b"{no json", 400),
        (("demands", "a.ipynb"), b'{"gpus": "many"}', 400),
        (("demands", "a.ipynb"), b'{"gpus": 1.5}', 400),
        (("no-such-thing",), b"{}", 404),
    ],
)
async def test_what_cannot_be_used_is_answered_with_message_and_reason(kernels, jp_fetch, path, body, status):
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(*API, *path, method="PUT", body=body)

    assert caught.value.code == status
    assert json.loads(caught.value.response.body).keys() == {"message", "reason"}


async def test_nobody_asks_without_a_login(kernels, jp_fetch):
    for method, body in (("GET", None), ("POST", b"{}"), ("PUT", b"{}")):
        with pytest.raises(HTTPClientError) as caught:
            await jp_fetch(*API, "status", method=method, body=body, headers={"Authorization": "none"})
        assert caught.value.code == 403


async def test_a_kernel_asks_about_its_own_session_by_its_capability_only_while_it_lives(kernels, jp_fetch):
    mine, other = await kernels.start_kernel(), await kernels.start_kernel()
    token = kernels.get_kernel(mine).provisioner._desk._kernels[mine].token
    headers = {"Authorization": f"gpushare {token}"}

    answer = await jp_fetch(*API, "sessions", mine, "hello", method="POST", body=b"{}", headers=dict(headers))
    assert answer.code in (200, 204)

    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(*API, "sessions", other, "release", method="POST", body=b"{}", headers=dict(headers))
    assert caught.value.code == 403

    await kernels.shutdown_kernel(mine, now=True)
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(*API, "sessions", mine, headers=dict(headers))
    assert (caught.value.code, reason(caught)) == (403, "capability")


async def test_a_browser_needs_the_xsrf_token_to_change_anything(
    kernels, jp_serverapp, http_server_client, jp_base_url
):
    """A cookie alone is what a forged form would send."""
    handler_cookie = jp_serverapp.identity_provider
    handler_cookie.get_user = lambda handler: handler_cookie.generate_anonymous_user(handler)  # as with a login cookie
    request = HTTPRequest(f"{jp_base_url}gpushare/api/v1/demands/a.ipynb", method="PUT", body=b'{"gpus": 0.5}')

    with pytest.raises(HTTPClientError) as caught:
        await http_server_client.fetch(f"{jp_base_url}gpushare/api/v1/demands/a.ipynb", method="PUT", body=request.body)
    assert caught.value.code == 403

    answer = await http_server_client.fetch(
        f"{jp_base_url}gpushare/api/v1/demands/a.ipynb",
        method="PUT",
        body=request.body,
        headers={"Cookie": "_xsrf=abc", "X-XSRFToken": "abc"},
    )
    assert answer.code == 200


async def test_looking_is_not_using(gpu, jp_serverapp):
    await gpu("status")
    before = jp_serverapp.web_app.settings.get("api_last_activity")

    await gpu("status")

    assert jp_serverapp.web_app.settings.get("api_last_activity") == before


async def test_the_stream_begins_with_a_whole_view(
    kernels, jp_serverapp, http_server_client, jp_base_url, jp_auth_header
):
    got = bytearray()

    class Enough(Exception):
        pass

    def hear(chunk: bytes) -> None:
        got.extend(chunk)
        if b"\n\n" in got:
            raise Enough

    with pytest.raises((Enough, HTTPClientError)):
        await http_server_client.fetch(
            f"{jp_base_url}gpushare/api/v1/events", headers=jp_auth_header, streaming_callback=hear, request_timeout=5
        )

    assert got.startswith(b"event: status\nid: ")
    view = json.loads(bytes(got).split(b"data: ")[1].split(b"\n\n")[0])
    assert isinstance(view["servers"], dict)


async def test_metrics_of_ours_are_among_the_servers(kernels, gpu, jp_fetch, until):
    await until(lambda: both(gpu))

    async def shown() -> bool:
        return b"gpushare_device" in (await jp_fetch("metrics")).body

    assert await until(shown)
