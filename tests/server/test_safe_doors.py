"""Servers as admins really run them: with a password, with https, with terminals that see no GPU."""

from __future__ import annotations

import http.cookiejar
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_server.auth import passwd

from jupyter_gpushare.demo.servers import serving, wait_for
from jupyter_gpushare.errors import NotAllowed, Unavailable
from jupyter_gpushare.kernel.client import Channel, Session

OTHERS = ("jupyterlab", "notebook", "notebook_shim", "jupyter_lsp", "nbclassic")


def settings(*, terminals: bool = False, **server: object) -> dict[str, dict[str, object]]:
    off = dict.fromkeys(OTHERS, False) | {"jupyter_server_terminals": terminals}
    return {
        "ServerApp": {"jpserver_extensions": off, **server},
        "GPUShare": {"simulated_inventory": "1x1xA100"},
    }


def child_environment(server) -> dict[str, str]:
    """Of the one kernel or shell that the server has started."""
    (child,) = psutil.Process(server.process.pid).children()
    return child.environ()


# --- terminals ---


@pytest.mark.parametrize(("terminals", "mask"), [("hide", ""), ("leave", "GPU-of-the-server")])
def test_a_terminal_sees_no_gpu_where_they_are_hidden_and_the_servers_own_otherwise(tmp_path, terminals, mask):
    of_server = {"CUDA_VISIBLE_DEVICES": "GPU-of-the-server", "SHELL": "/bin/sh"}
    configured = settings(terminals=True)
    configured["GPUShare"]["terminals"] = terminals
    with serving("alice", tmp_path, lab=False, settings=configured, environment=of_server) as server:
        server.ask("POST", "api/terminals", {})

        shell = child_environment(server)

        assert shell["CUDA_VISIBLE_DEVICES"] == mask
        assert shell["JUPYTER_SERVER_URL"]  # what the terminals' own extension sets stays


# --- a password ---


def test_a_server_with_a_password_lets_in_who_knows_it_and_its_own_kernels_and_nobody_elses_token(tmp_path):
    locked = {"PasswordIdentityProvider": {"hashed_password": passwd("open sesame", "sha1")}}
    with (
        serving("alice", tmp_path / "a", lab=False, settings=settings() | locked, ready_path="api") as server,
        serving("bob", tmp_path / "b", lab=False, settings=settings()) as other,
    ):
        assert server.token == ""
        status = f"{server.url}gpushare/api/v1/status"
        for foreign in (f"token {other.token}", "token ", "gpushare ", f"gpushare {other.token}"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(urllib.request.Request(status, headers={"Authorization": foreign}))
            with caught.value as refused:
                assert refused.code == 403
                assert json.loads(refused.read())["reason"] in ("not_allowed", "capability")

        browser = logged_in(server.url, "open sesame")
        body = wait_for("the broker answers", lambda: looked(browser, status))
        assert body["user"] == "alice"

        request = urllib.request.Request(
            f"{server.url}api/kernels", data=b'{"name": "python3"}', headers={"X-XSRFToken": xsrf(browser)}
        )
        browser.open(request).close()
        kernel, stranger = child_environment(server), dict(child_environment(server))
        assert Session(Channel.from_environment(kernel)).status()["id"] == kernel["GPUSHARE_SESSION"]
        other.ask("POST", "api/kernels", {"name": "python3"})
        stranger["GPUSHARE_TOKEN"] = child_environment(other)["GPUSHARE_TOKEN"]
        with pytest.raises(NotAllowed):
            Session(Channel.from_environment(stranger)).status()


def logged_in(url: str, password: str) -> urllib.request.OpenerDirector:
    """A browser that sent the login form."""
    cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    browser = urllib.request.build_opener(cookies)
    browser.open(f"{url}login").close()
    form = urllib.parse.urlencode({"_xsrf": xsrf(browser), "password": password}).encode()
    browser.open(f"{url}login?next=%2Fapi", form).close()
    return browser


def xsrf(browser: urllib.request.OpenerDirector) -> str:
    (jar,) = [handler.cookiejar for handler in browser.handlers if hasattr(handler, "cookiejar")]
    (value,) = [cookie.value for cookie in jar if cookie.name == "_xsrf"]
    return value


def looked(browser: urllib.request.OpenerDirector, url: str) -> Any:
    """The JSON there; None while the broker starts."""
    try:
        with browser.open(urllib.request.Request(url, headers={"Referer": url})) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 503:
                raise
        return None


# --- https ---


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def certificate(folder: Path, name: str, issuer: str | None = None) -> tuple[Path, Path]:
    """(certificate, key) for the host `name`, by itself or by an authority of that name."""
    folder.mkdir(exist_ok=True)
    key, made = folder / f"{name}.key", folder / f"{name}.pem"
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(made)]
    new += ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    if issuer is not None:
        authority, its_key = certificate(folder, issuer)
        new += ["-CA", str(authority), "-CAkey", str(its_key), "-addext", "basicConstraints=critical,CA:FALSE"]
    openssl(*new)
    return made, key


@pytest.mark.parametrize("issuer", [None, "authority"], ids=["signed by itself", "signed by an authority"])
def test_a_kernel_knows_its_https_server_by_that_servers_own_certificate_and_no_other(tmp_path, monkeypatch, issuer):
    """The name in it is the host's, while kernels come over the loopback."""
    made, key = certificate(tmp_path / "tls", "gpu.example.org", issuer)
    foreign, _ = certificate(tmp_path / "tls", "foreign.example.org")
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)  # of this test alone
    secure = settings(certfile=os.path.relpath(made, tmp_path / "alice"), keyfile=str(key))
    with serving("alice", tmp_path, lab=False, settings=secure) as server:
        server.ask("POST", "api/kernels", {"name": "python3"})
        kernel = child_environment(server)

        assert kernel["GPUSHARE_URL"].startswith("https://127.0.0.1:")
        assert Session(Channel.from_environment(kernel)).status()["id"] == kernel["GPUSHARE_SESSION"]
        for cafile in (None, str(foreign)):
            channel = Channel(*(kernel[f"GPUSHARE_{name}"] for name in ("URL", "TOKEN", "SESSION")), cafile)
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                Session(channel).status()
