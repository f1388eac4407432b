"""A machine's shared broker: every user's own server finds it, and each is who the system says they are."""

from __future__ import annotations

import contextlib
import grp
import http.client
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.server import socket as doors
from tests.programs import Program, running
from tests.serving import ALONE, until

pytestmark = [pytest.mark.timeout(240)]
PEOPLE = ("daemon", "nobody")  # users that every system has
SILENT = "from jupyter_gpushare.simulated import allocate\nheld = allocate('6GiB')\n"  # at every kernel's start


def run_by(name: str, *command: str) -> list[str]:
    """The command as that user runs it; they may read root's files, where the interpreter of the tests may lie."""
    entry, reads = pwd.getpwnam(name), "+dac_read_search"
    ids = [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, f"--inh-caps={reads}", f"--ambient-caps={reads}", *command]


def missing() -> str | None:
    if os.getuid() != 0:
        return "needs root: two users' servers are started"
    try:
        for name in PEOPLE:
            subprocess.run(run_by(name, sys.executable, "-c", "import jupyter_gpushare"), check=True, cwd="/")
    except (KeyError, OSError, subprocess.SubprocessError) as error:
        return f"no two users who can run this Python: {error}"
    return None


@dataclass
class Person:
    """One user of the machine, with a Jupyter server of their own."""

    name: str
    url: str
    token: str

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        host = self.url.removeprefix("http://").rstrip("/")
        connection = http.client.HTTPConnection(host, timeout=30)
        with contextlib.closing(connection):
            headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
            connection.request(method, f"/{path}", json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
        return answer.status, json.loads(text) if text else None

    def gpu(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return self.ask(method, f"gpushare/api/v1/{path}", body)

    def status(self) -> dict[str, Any] | None:
        code, status = self.gpu("GET", "status")
        return status if code == 200 else None

    def session(self) -> dict[str, Any] | None:
        return next(iter((self.status() or {"sessions": []})["sessions"]), None)

    def in_use(self) -> dict[str, Any] | None:
        """Their session, once the agent tells of its process's memory."""
        session = self.session()
        return session if session and session["devices"] and session["devices"][0]["memory_used"] else None


@contextlib.contextmanager
def at_work(name: str, folder: Path, broker: Path) -> Iterator[Person]:
    """A plain `jupyter server` of that OS user: nothing of the broker is configured."""
    entry = pwd.getpwnam(name)
    home = folder / name
    startup = home / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text(SILENT)
    runtime, config = home / "runtime", home / "config"
    config.mkdir()
    (config / "jupyter_server_config.json").write_text(json.dumps({"ServerApp": ALONE}))
    for made in (home, *home.rglob("*")):
        os.chown(made, entry.pw_uid, entry.pw_gid)
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "GPUSHARE", "XDG"))}
    here = {
        "HOME": str(home),
        "USER": "somebody-else",  # a name in the environment proves nothing
        "LOGNAME": "somebody-else",
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_CONFIG_DIR": str(config),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "GPUSHARE_SOCKET": str(broker),
    }
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            run_by(
                name,
                sys.executable,
                *("-m", "jupyter_server", "--no-browser", "--port=0", f"--ServerApp.root_dir={home}"),
            ),
            cwd=home,
            env=plain | here,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def ready() -> Person | None:
        assert process.poll() is None, (folder / f"{name}.log").read_text()
        try:
            info = json.loads((runtime / f"jpserver-{process.pid}.json").read_text())
            person = Person(name, info["url"], info["token"])
            return person if person.status() else None
        except (OSError, json.JSONDecodeError):
            return None

    try:
        yield until(ready, 90)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def as_user(
    name: str, path: Path, method: str, route: str, who: dict[str, Any] | None = None, body: str | None = None
) -> tuple[int, Any]:
    """What the socket answers a process of that user."""
    code = f"""if True:
        import http.client, json, socket
        connection = http.client.HTTPConnection("broker", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect({str(path)!r})
        connection.request({method!r}, {"/api/v1/" + route!r}, {body!r}, headers={{}} if {who!r} is None else
            {{"X-GPUShare-Caller": json.dumps({who!r})}})
        answer = connection.getresponse()
        print(answer.status)
        print(answer.read().decode())
    """
    asking = run_by(name, sys.executable, "-c", code)
    done = subprocess.run(asking, capture_output=True, text=True, check=True, cwd="/")
    status, _, text = done.stdout.partition("\n")
    return int(status), json.loads(text) if text.strip() else None


@pytest.fixture(scope="module")
def folder():
    """One that every user may enter."""
    if why := missing():
        pytest.skip(why)
    made = Path(tempfile.mkdtemp(prefix="gpushare-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def broker(folder):
    settings = {
        "devices": "simulated",
        "simulated_inventory": "1x2xA100",
        "ledger_url": f"sqlite:///{folder / 'ledger.sqlite'}",
    }
    path = folder / "run" / "broker.sock"
    program = Program(folder / "broker", "broker", settings, ("--socket", str(path)))
    with running(program):
        program.says("runs in this process")
        yield program, path


@pytest.fixture(scope="module")
def people(folder, broker):
    """Both, each with one kernel that holds 6 GiB."""
    with contextlib.ExitStack() as servers:
        found = [servers.enter_context(at_work(name, folder, broker[1])) for name in PEOPLE]
        for person in found:
            assert person.ask("POST", "api/kernels", {"name": "python3"})[0] == 201
        yield found


def test_each_finds_the_broker_and_sees_only_their_own(people):
    for person in people:
        session = until(person.in_use, 60)
        status = person.status()
        assert (status["mode"], status["user"], status["admin"]) == ("socket", person.name, False)
        assert [one["user"] for one in status["sessions"]] == [person.name]
        assert session["devices"][0]["memory_used"] >= 6 * 2**30


def test_nobody_speaks_for_another(people, broker):
    path, (alice, bob) = broker[1], PEOPLE
    victim = until(people[0].session)
    forged, server = {"user": alice, "role": "server"}, {"user": bob, "role": "server"}
    drain = f"devices/{victim['devices'][0]['uuid']}/drain"
    assert as_user(bob, path, "GET", "status", forged)[0] == 403
    assert as_user(bob, path, "POST", f"sessions/{victim['id']}/park")[0] == 403
    assert as_user(bob, path, "POST", f"sessions/{victim['id']}/ended", server, '{"why": "dead"}')[0] == 403
    assert as_user(bob, path, "POST", drain, {"user": bob, "admin": True})[0] == 403
    assert until(people[0].session)["id"] == victim["id"]


def test_root_is_an_admin(people, broker):
    code, status = as_user("root", broker[1], "GET", "status")
    assert (code, status["admin"]) == (200, True)
    assert {one["user"] for one in status["sessions"]} == set(PEOPLE)


def test_a_killed_broker_is_followed_by_one_that_knows_all_of_it(people, broker):
    program, path = broker
    before = {person.name: until(person.in_use, 60) for person in people}
    program.stop(signal.SIGKILL)
    assert path.is_socket()
    program.start()
    for person in people:
        after = until(lambda person=person: person.status() and person.session(), 60)
        assert after["id"] == before[person.name]["id"]
        assert after["devices"][0]["uuid"] == before[person.name]["devices"][0]["uuid"]


def test_members_of_the_group_and_root_are_admins(monkeypatch):
    entry = next(entry for entry in pwd.getpwall() if entry.pw_uid != 0)
    assert doors._user(entry.pw_uid) == (entry.pw_name, False)
    monkeypatch.setattr(doors, "ADMINS", grp.getgrgid(entry.pw_gid).gr_name)
    assert doors._user(entry.pw_uid) == (entry.pw_name, True)
    assert doors._user(0)[1] is True
    assert doors._user(2**31 - 7) == (f"uid-{2**31 - 7}", False)
