"""What `configure` makes of a hub's configuration: ours is added, what is there stays."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace

import pytest
from traitlets.config import Config

from jupyter_gpushare.errors import BadDemand
from jupyter_gpushare.hub import ADMIN, READ, configure, pre_spawn_hook

ACCESS = "access:services!service=gpushare"


class Spawner:
    """What a hook looks at of a spawner before its server has a token."""

    name, api_token, handler, log = "", "", None, logging.getLogger("spawner")

    def __init__(self, **environment: str) -> None:
        self.hub, self.user = SimpleNamespace(base_url="/base/hub/"), SimpleNamespace(name="alice")
        self.environment, self.user_options = environment, {}


def test_one_line_adds_service_scopes_roles_and_hook():
    c = Config()
    c.Authenticator.admin_users = {"boss"}
    c.GPUShare.default_gpus = 0.25

    configure(c, ledger_url="sqlite:////srv/ledger.sqlite")

    (service,) = c.JupyterHub.services
    assert service["name"] == "gpushare"
    assert "jupyter_gpushare.hub" in service["command"]
    settings = json.loads(service["environment"]["GPUSHARE_SETTINGS"])
    assert settings["GPUShare"] == {"default_gpus": 0.25, "ledger_url": "sqlite:////srv/ledger.sqlite"}
    assert set(c.JupyterHub.custom_scopes) == {ADMIN, READ}
    roles = {role["name"]: role for role in c.JupyterHub.load_roles}
    assert roles["gpushare-admin"]["users"] == ["boss"]
    assert c.JupyterHub.extra_user_scopes == {ACCESS}
    assert c.Spawner.server_token_scopes == ["users:activity!user", "access:servers!server", ACCESS]


def test_what_is_configured_already_stays():
    def hook(spawner):
        spawner.environment["MINE"] = "1"

    c = Config()
    c.JupyterHub.services.append({"name": "other", "api_token": "x" * 32})
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self", "shares!user"]}, {"name": "other", "scopes": []}]
    c.JupyterHub.custom_scopes = {"custom:mine:x": {"description": "mine"}}
    c.Spawner.pre_spawn_hook = hook
    c.Spawner.server_token_scopes = ["users:activity!user", "custom:mine:x"]

    configure(c)

    assert [service["name"] for service in c.JupyterHub.services] == ["other", "gpushare"]
    roles = {role["name"]: role["scopes"] for role in c.JupyterHub.load_roles}
    assert roles["user"] == ["self", "shares!user", ACCESS]
    assert roles["other"] == []
    assert "custom:mine:x" in c.JupyterHub.custom_scopes
    assert c.Spawner.server_token_scopes == ["users:activity!user", "custom:mine:x", ACCESS]
    started = Spawner()
    asyncio.run(c.Spawner.pre_spawn_hook(started))
    assert started.environment == {
        "MINE": "1",
        "GPUSHARE_BROKER_URL": "http://127.0.0.1:8815/base/services/gpushare/",
    }


def test_a_spawners_own_section_gets_the_hook_as_well():
    """`c.KubeSpawner.…` wins over `c.Spawner.…`."""
    c = Config()
    c.KubeSpawner.pre_spawn_hook = lambda spawner: None
    c.KubeSpawner.server_token_scopes = lambda spawner: ["users:activity!user"]

    configure(c, connect_url="http://gpushare.svc:8815")

    started = Spawner()
    asyncio.run(c.KubeSpawner.pre_spawn_hook(started))
    assert started.environment["GPUSHARE_BROKER_URL"] == "http://gpushare.svc:8815/base/services/gpushare/"
    assert asyncio.run(c.KubeSpawner.server_token_scopes(started)) == ["users:activity!user", ACCESS]


def test_a_hook_that_takes_its_time_runs_first():
    async def hook(spawner):
        await asyncio.sleep(0)
        spawner.environment = {"GPUSHARE_BROKER_URL": "http://own/"}

    started = Spawner()
    asyncio.run(pre_spawn_hook(started, before=hook))
    assert started.environment == {"GPUSHARE_BROKER_URL": "http://own/"}


def test_a_service_started_elsewhere_needs_no_command():
    c = Config()
    configure(c, url="http://10.0.0.7:8815", api_token="s" * 32)
    (service,) = c.JupyterHub.services
    assert "command" not in service
    assert service["api_token"] == "s" * 32


@pytest.mark.parametrize(
    ("settings", "arguments", "field"),
    [
        ({"start_wait_s": -1}, {}, "start_wait_s"),
        ({}, {"url": "127.0.0.1:8815"}, "url"),
        ({}, {"connect_url": "http://there/path"}, "url"),
        ({}, {"ledger_url": "nonsense"}, "ledger_url"),
    ],
)
def test_an_unusable_value_stops_the_hubs_start_with_one_line(settings, arguments, field):
    c = Config()
    c.GPUShare.update(settings)
    with pytest.raises(BadDemand, match=field) as refused:
        configure(c, **arguments)
    assert "\n" not in str(refused.value)


def test_configured_twice_is_refused():
    c = Config()
    configure(c)
    with pytest.raises(BadDemand, match="once"):
        configure(c)


def test_an_idle_culler_may_ask_and_knows_where():
    c = Config()
    c.JupyterHub.bind_url = "http://:8000/base/"
    c.JupyterHub.services = [{"name": "idle", "command": ["python", "-m", "jupyterhub_idle_culler"]}, {"name": "other"}]
    configure(c)
    assert c.JupyterHub.services[0]["environment"] == {
        "GPUSHARE_BROKER_URL": "http://127.0.0.1:8815/base/services/gpushare/"
    }
    assert "environment" not in c.JupyterHub.services[1]
    roles = {role["name"]: role for role in c.JupyterHub.load_roles}
    assert roles["gpushare-culler"]["services"] == ["idle"]
    assert READ in roles["gpushare-culler"]["scopes"]
