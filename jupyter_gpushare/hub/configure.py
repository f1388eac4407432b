"""What a `jupyterhub_config.py` says to have the GPU service: in one line, or piece by piece.

Nothing of JupyterHub is imported: a config file is read by the hub, and these are plain values and functions.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from traitlets import TraitError
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from ..config import GPUShare, Policy
from ..errors import BadDemand
from .form import options_form
from .spawn import NAME, URL, broker_url, post_stop_hook, pre_spawn_hook

ADMIN, READ = "custom:gpushare:admin", "custom:gpushare:read"
ACCESS = f"access:services!service={NAME}"
CUSTOM_SCOPES = {
    ADMIN: {"description": "See and change every GPU session, drain GPUs."},
    READ: {"description": "See every GPU session; change one's own only."},
}
SERVICE_SCOPES = ("list:groups", "read:groups")  # whose members share by which weight
SERVER_SCOPES = ("users:activity!user", "access:servers!server")  # the hub's own default for a user server's token
SHARE = 0.1  # of a GPU, on the page that starts a server, where kernels ask for none or whole ones by default


def service(
    url: str = URL,
    *,
    api_token: str = "",
    settings: Mapping[str, Mapping[str, Any]] = {},
    config_file: str = "",
) -> dict[str, Any]:
    """An entry of `JupyterHub.services`. With `api_token` somebody else starts the service; else the hub does.

    `settings` are traits by class, ``{"GPUShare": {…}, "Policy": {…}}``; `config_file` is read before them.
    """
    entry: dict[str, Any] = {
        "name": NAME,
        "url": url,
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": [ACCESS, ADMIN, READ],
    }
    if api_token:
        return entry | {"api_token": api_token}
    command = [sys.executable, "-m", "jupyter_gpushare.hub", "--managed"]
    command += ["--config", os.path.abspath(config_file)] if config_file else []
    # In the environment, not among the arguments: a ledger's password must not be seen in a list of processes.
    return entry | {"command": command, "environment": {"GPUSHARE_SETTINGS": json.dumps(settings)}}


def token_scopes(scopes: Iterable[str] = SERVER_SCOPES) -> list[str]:
    """A user server's token scopes with which it may also ask the service; `Spawner.server_token_scopes`."""
    return list(dict.fromkeys([*scopes, ACCESS]))


def configure(
    c: Config,
    *,
    bus_url: str | None = None,
    ledger_url: str = "",
    admins: Iterable[str] | None = None,
    url: str = URL,
    connect_url: str = "",
    api_token: str = "",
    config_file: str = "",
    gpu_form: bool | Iterable[str] = False,
    gpu_resource: str = "",
) -> None:
    """Adds the GPU service to a hub: the service, its role and scopes, and the spawner hooks. What is there stays.

    `c.GPUShare` and `c.Policy` as set above this call go to the service. `admins` see and change every session; by
    default the users of `c.Authenticator.admin_users` as set above. `url` is where the service listens, `connect_url`
    where user servers reach it, if that differs (in containers). With `api_token` the service is started elsewhere,
    and has its settings there. With `gpu_form` (True, or the models to choose from) users choose on the hub's page with
    which GPU a server starts. `gpu_resource` is the name by which the spawner shall request GPUs where whole ones are
    asked for, such as "nvidia.com/gpu"; by default it requests none. Raises BadDemand, naming the field, for what
    cannot be used.
    """
    settings = {name: dict(c[name]) for name in ("GPUShare", "Policy") if name in c}
    settings["GPUShare"] = settings.get("GPUShare", {}) | {
        name: value for name, value in (("bus_url", bus_url), ("ledger_url", ledger_url)) if value
    }
    _check(settings, url, connect_url)
    hub, here = c.JupyterHub, connect_url or url
    services, roles = _plain(hub, "services", []), _plain(hub, "load_roles", [])
    if any(entry.get("name") == NAME for entry in services):
        raise BadDemand(f"services: there is one named {NAME!r} already; call configure once.")
    services.append(service(url, api_token=api_token, settings=settings, config_file=config_file))
    _plain(hub, "custom_scopes", {}).update(CUSTOM_SCOPES)
    admins = sorted(_plain(c.Authenticator, "admin_users", set()) if admins is None else admins)
    roles.append({"name": f"{NAME}-service", "scopes": list(SERVICE_SCOPES), "services": [NAME]})
    roles.append({"name": f"{NAME}-admin", "scopes": [ADMIN, ACCESS], "users": admins})
    cullers = [entry for entry in services if _culls(entry)]
    names = [entry["name"] for entry in cullers]
    roles.append({"name": f"{NAME}-culler", "scopes": [READ, ACCESS], "services": names})
    for entry in (entry for entry in cullers if "command" in entry):  # where cull_arbiter asks
        entry["environment"] = {"GPUSHARE_BROKER_URL": broker_url(here, _base(hub)), **entry.get("environment", {})}
    users = [role for role in roles if role.get("name") == "user" and "scopes" in role]
    if users:  # where it is redefined, extra_user_scopes is ignored
        users[0]["scopes"] = [*users[0]["scopes"], ACCESS]
    else:
        hub.extra_user_scopes = {*_plain(hub, "extra_user_scopes", set()), ACCESS}
    start = partial(pre_spawn_hook, url=url, connect_url=connect_url, gpu_resource=gpu_resource)
    page = partial(options_form, share=_share(settings), models=_models(gpu_form)) if gpu_form else None
    for name in {"Spawner", *(name for name in c if name.endswith("Spawner"))}:  # a subclass's own section wins
        section = c[name]
        if name == "Spawner" or "server_token_scopes" in section:
            section.server_token_scopes = _with_ours(_plain(section, "server_token_scopes", []))
        ours = {"pre_spawn_hook": start, "post_stop_hook": post_stop_hook} | ({"options_form": page} if page else {})
        for trait, hook in ours.items():
            if name == "Spawner" or trait in section:
                section[trait] = partial(hook, before=section.get(trait))


def _check(settings: Mapping[str, Mapping[str, Any]], *urls: str) -> None:
    """An unusable value stops the hub's start with one line, not the service's again and again."""
    for kind in (GPUShare, Policy):
        try:
            kind(config=Config(settings))
        except TraitError as error:
            raise BadDemand(str(error)) from None
    for url in filter(None, urls):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise BadDemand(f"url: {url!r} is not usable; it must be such as {URL!r}, without a path.")


def _share(settings: Mapping[str, Mapping[str, Any]]) -> float:
    """The share that the form offers: what kernels ask for by default, where that is one."""
    asked = settings["GPUShare"].get("default_gpus", SHARE)
    return float(asked) if 0 < asked < 1 else SHARE


def _models(gpu_form: bool | Iterable[str]) -> tuple[str, ...]:
    return () if isinstance(gpu_form, bool) else tuple(gpu_form)


def _culls(entry: Mapping[str, Any]) -> bool:
    """Is this service an idle culler, by its name or what it runs?"""
    command = entry.get("command") or ()
    return "cull" in " ".join([entry.get("name", ""), *([command] if isinstance(command, str) else command)])


def _base(hub: Config) -> str:
    """The hub's base URL as configured."""
    return str(hub.base_url) if "base_url" in hub else urlsplit(hub.bind_url if "bind_url" in hub else "").path


def _plain(section: Config, name: str, empty: Any) -> Any:
    """A section's own list, dict or set, to be added to; `empty` where there is none yet."""
    if name not in section:
        section[name] = empty
    elif isinstance(section[name], LazyConfigValue):  # c.JupyterHub.services.append(…) on what was never set
        section[name] = section[name].get_value(empty)
    return section[name]


def _with_ours(scopes: Any) -> Any:
    """A spawner's `server_token_scopes`, a list or a function of the spawner, and ours."""
    if not callable(scopes):
        return token_scopes(scopes or SERVER_SCOPES)

    async def both(spawner: Any) -> list[str]:
        given = scopes(spawner)
        return token_scopes((await given if inspect.isawaitable(given) else given) or SERVER_SCOPES)

    return both
