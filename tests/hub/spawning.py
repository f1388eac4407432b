"""Real spawners of a user in a hub's database, and a service that answers what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from batchspawner import BatchSpawnerBase
from docker import APIClient
from dockerspawner import DockerSpawner, SwarmSpawner
from jupyterhub import orm
from jupyterhub.objects import Hub, Server
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from kubespawner import KubeSpawner
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from traitlets import List, Unicode
from traitlets.config import Config

CHOICE = {"server": "alpha", "machine": True, "model": "NVIDIA A100", "gpus": 2.0, "terms": [], "alternatives": []}


@dataclass
class Service:
    """What answers at /services/gpushare/api/v1/choose, and what it was asked."""

    url: str = ""
    status: int = 200
    body: Any = field(default_factory=lambda: dict(CHOICE))  # bytes as they are
    delay_s: float = 0.0
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # the token and the question
    ends: asyncio.Event = field(default_factory=asyncio.Event)


@contextlib.asynccontextmanager
async def service(**how: Any) -> AsyncIterator[Service]:
    answers = Service(**how)

    class Choose(RequestHandler):
        async def post(self) -> None:
            answers.asked.append((self.request.headers["Authorization"], json.loads(self.request.body)))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(answers.ends.wait(), answers.delay_s)
            self.set_status(answers.status)
            raw = answers.body if isinstance(answers.body, bytes) else json.dumps(answers.body).encode()
            self.finish(raw)

    socket, port = bind_unused_port()
    server = HTTPServer(Application([("/services/gpushare/api/v1/choose", Choose)], log_function=lambda _: None))
    server.add_socket(socket)
    answers.url = f"http://127.0.0.1:{port}"
    try:
        yield answers
    finally:
        answers.ends.set()
        server.stop()
        await server.close_all_connections()


class Users:
    """A hub's database in memory, with users whose spawners are of any class."""

    def __init__(self) -> None:
        self.db = orm.new_session_factory("sqlite:///:memory:")()

    def spawner(self, kind: type, config: dict[str, Any] | None = None, *, user: str = "root", name: str = "") -> Any:
        """A spawner as the hub makes it, with a token. `config`: what stands in its section of the configuration."""
        found = orm.User.find(self.db, user)
        if found is None:
            found = orm.User(name=user)
            self.db.add(found)
            self.db.commit()
        c = Config()
        c[kind.__name__].update(config or {})
        owner = User(found, {"config": c})
        owner._new_orm_spawner(name, "")
        made = owner._new_spawner(name, spawner_class=kind, hub=Hub(base_url="/hub/"), config=c)
        made.server = Server(ip="127.0.0.1", port=0, base_url=f"/user/{user}/")
        made.api_token, made.user_options = f"token-of-{user}", {}
        return made

    def close(self) -> None:
        self.db.close()
        self.db.get_bind().dispose()


# --- what real spawners would submit ---------------------------------------------------------------------------


class _Recorded:
    """A docker spawner whose daemon only takes note."""

    client = APIClient(base_url="tcp://127.0.0.1:1", version="1.44")  # a given version asks no daemon

    def docker(self, method: str, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        self.submitted = kwargs if method.startswith("create_") else getattr(self, "submitted", None)
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(["task"] if method == "tasks" else {"Id": "1", "ID": "1"})
        return done


class Docker(_Recorded, DockerSpawner):
    pass


class Swarm(_Recorded, SwarmSpawner):
    pass


def batch(kind: type) -> type:
    """A batch spawner whose batch system only takes note."""

    class Batch(kind):
        async def run_command(self, cmd: str, input: str | None = None, env: Any = None) -> str:  # noqa: A002
            self.submitted = {"command": cmd, "script": input, "env": dict(env)}
            return "7"

        def parse_job_id(self, output: str) -> str:
            return output

    return Batch


class _Still(Spawner):
    """It starts nothing."""

    async def start(self) -> None: ...

    async def stop(self, now: bool = False) -> None: ...

    async def poll(self) -> int:
        return 0


class SSHSpawner(_Still):
    """What sshspawner's class of that name has: it starts servers on one of these hosts (it needs an older hub)."""

    remote_hosts = List(Unicode()).tag(config=True)
    remote_host = Unicode()


class OwnSpawner(_Still):
    """Somebody's own way to start servers."""


async def submitted(spawner: Any) -> Any:
    """All that the spawner would hand to whatever starts its server."""
    if isinstance(spawner, KubeSpawner):
        return (await spawner.get_pod_manifest()).to_dict()
    if isinstance(spawner, DockerSpawner):
        await spawner.create_object()
        return spawner.submitted
    if isinstance(spawner, BatchSpawnerBase):
        await spawner.submit_batch_script()
        return spawner.submitted
    return {"env": spawner.get_env(), "hosts": list(getattr(spawner, "remote_hosts", ()))}
