"""What a hub of several GPU servers promises, told by running it: one pool, and nothing lost when a part is killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from .hub import Hub
from .notebook import Notebook
from .servers import DemoFailed, Server, wait_for
from .story import GIB, USE, See


def tell(hub: Hub, see: See) -> None:
    """Runs the whole story. Raises DemoFailed at the first thing that does not happen."""
    alice, bob = hub.user("alice"), hub.user("bob")
    see("users", "alice and bob logged in; their servers run.")
    every = {"alpha", "beta", "gamma"}
    servers = wait_for("all GPU servers are up", lambda: _up(alice) if _up(alice) >= every else None, 60.0)
    see("pool", f"The GPUs of {', '.join(sorted(servers))} are one pool of {len(_devices(alice))}.")

    train, explore = Notebook(alice, "train.ipynb"), Notebook(bob, "explore.ipynb")
    for notebook in (train, explore):
        device = _device(notebook)
        see("placed", f"{notebook.server.user}'s {notebook.name} has {device['model']} of {device['server']}.")
    train.run(f"{USE}\nkept = 42\nheld = allocate('6GiB')\nwork(1)")
    explore.run(f"{USE}\nwork(1)")
    wait_for("its memory is seen", lambda: _memory(train) >= 6 * GIB, 60.0)

    for what, kill in _kills(hub, train):
        train.act("park")
        train.until("is parked", "parked", timeout_s=60.0)
        kill()
        train.act("resume")
        train.until("comes back", "idle", "active", timeout_s=90.0)
        kept = train.run("print(kept)").text.strip()
        if kept != "42":
            raise DemoFailed(f"After {what} was killed, train.ipynb has {kept!r} where it had 42.")
        see("killed", f"train.ipynb was parked, {what} was killed, train.ipynb came back and had lost nothing.")

    for notebook in (train, explore):
        notebook.close()
    wait_for("everything is given back", lambda: not any(one["memory_used"] for one in _devices(alice)), 60.0)
    see("closed", "Closing the notebooks gave everything back.")


def _kills(hub: Hub, train: Notebook) -> list[tuple[str, Callable[[], None]]]:
    server = str(train.session()["server"])

    def service() -> None:
        hub.kill_service()
        wait_for("the hub has started the service again", lambda: _answers(train), 60.0)

    def agent() -> None:
        hub.kill_agent(server)
        hub.start_agent(server)  # as systemd does

    found: list[tuple[str, Callable[[], None]]] = [("the GPU service", service)]
    return [*found, (f"the agent of {server}", agent)] if hub.agents else found


def _answers(notebook: Notebook) -> bool:
    """Its session is known again."""
    with contextlib.suppress(DemoFailed, OSError):
        return bool(notebook.session()["state"] == "parked")
    return False


def _up(person: Server) -> set[str]:
    return {server["name"] for server in person.gpu("GET", "status")["servers"] if server["state"] == "up"}


def _devices(person: Server) -> list[dict[str, Any]]:
    servers = person.gpu("GET", "status")["servers"]
    return [device | {"server": server["name"]} for server in servers for device in server["devices"]]


def _device(notebook: Notebook) -> dict[str, Any]:
    session = wait_for(
        f"{notebook.name} has a GPU", lambda: session if (session := notebook.session())["devices"] else None, 60.0
    )
    uuid = session["devices"][0]["uuid"]
    return next(device for device in _devices(notebook.server) if device["uuid"] == uuid)


def _memory(notebook: Notebook) -> int:
    return sum(device["memory_used"] or 0 for device in notebook.session()["devices"])
