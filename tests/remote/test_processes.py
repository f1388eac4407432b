"""A process on another machine by SSH: started, followed, signalled, found again, and never left alone."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("asyncssh")

from jupyter_gpushare.remote import process as processes
from jupyter_gpushare.remote.lines import Unreachable
from jupyter_gpushare.remote.process import LOST, Job, RemoteProcess
from jupyter_gpushare.remote.ssh import SSH
from tests.remote import sshd

log = logging.getLogger("test")
RUNS = "import time\nprint('runs', flush=True)\nwhile True: time.sleep(0.05)"
CAREFUL = f"import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(42))\n{RUNS}"
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{RUNS}"
PLAIN = "import zmq, json, sys, time\nc = json.load(open(sys.argv[1]))\ns = zmq.Context().socket(zmq.ROUTER)\n"
PLAIN += "s.bind(f\"tcp://{c['ip']}:{c['shell_port']}\")\nwhile True: time.sleep(1)"


@contextlib.asynccontextmanager
async def there(folder: Path):
    async with sshd.machine(folder / "beta") as machine:
        yield machine, launcher(machine)


def launcher(machine: sshd.Machine, **more: Any) -> SSH:
    options = {"user": None, "port": machine.port, "python": sys.executable, "config": machine.config, **more}
    return SSH("beta", machine.ip, **options)


async def looked(way: SSH, **more: Any) -> processes.Ready:
    asked = {"cwd": "/", "file": None, "program": sys.executable, "path": None, "user": getpass.getuser(), **more}
    return await processes.look(way, **asked)


def job(program: str, *arguments: str, keep_s: float = 60.0, cwd: str = "/") -> Job:
    command = [sys.executable, "-c", program, *arguments]
    return Job(command, sshd.environment(), cwd, {"key": "k"}, [0] * 5, keep_s)


async def started(way: SSH, program: str, *arguments: str, **more: Any) -> RemoteProcess:
    return await (await looked(way)).start(job(program, *arguments, **more), log)


async def until(what, timeout_s: float = 30.0):
    deadline = time.monotonic() + timeout_s
    while not (answer := what()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s; last: {answer!r}"
        await asyncio.sleep(0.02)
    return answer


def alive(kernel: RemoteProcess) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(kernel.pid).status() != psutil.STATUS_ZOMBIE
    return False


async def test_its_pid_start_time_output_and_exit_code_are_told(tmp_path, caplog, jp_asyncio_loop):
    caplog.set_level(logging.INFO)
    async with there(tmp_path) as (machine, way):
        kernel = await started(
            way, "import sys\nprint('said something')\nsys.stdin.read()\nsys.exit(3)", cwd=str(tmp_path)
        )
        assert kernel.started.ip == machine.ip
        await until(lambda: kernel.poll() is not None)
        assert kernel.poll() == 3
        assert "said something" in caplog.text
        await until(lambda: not Path(kernel.started.folder).exists())
        await kernel.close()


async def test_its_process_is_named_as_psutil_would(tmp_path, jp_asyncio_loop):
    async with there(tmp_path) as (_, way):
        kernel = await started(way, RUNS, cwd=str(tmp_path))
        seen = psutil.Process(kernel.pid)
        assert kernel.started.created == pytest.approx(seen.create_time(), abs=0.02)
        assert seen.cwd() == str(tmp_path)
        assert seen.cmdline()[0] == sys.executable
        kernel.kill()
        await until(lambda: kernel.poll() is not None)
        assert kernel.poll() == -signal.SIGKILL
        await kernel.close()


async def test_a_signal_reaches_it(tmp_path, caplog, jp_asyncio_loop):
    caplog.set_level(logging.INFO)
    async with there(tmp_path) as (_, way):
        kernel = await started(way, CAREFUL)
        await until(lambda: "runs" in caplog.text)
        kernel.send_signal(signal.SIGINT)
        await until(lambda: kernel.poll() is not None)
        assert kernel.poll() == 42
        await kernel.close()


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ({"cwd": "/nowhere/at/all"}, "its folder /nowhere/at/all is not there"),
        ({"file": "/nowhere.ipynb"}, "its notebook /nowhere.ipynb is not there"),
        ({"program": "/nowhere/python"}, "its interpreter /nowhere/python is not there"),
        ({"user": "somebody"}, "not as somebody"),
    ],
)
async def test_what_the_machine_lacks_is_named_before_anything_runs(tmp_path, jp_asyncio_loop, missing, words):
    async with there(tmp_path) as (_, way):
        with pytest.raises(Unreachable, match=r"^beta: ") as refused:
            await looked(way, **missing)
        assert words in str(refused.value)


async def test_a_machine_that_is_not_there_a_foreign_key_and_a_missing_python_are_told_apart(tmp_path, jp_asyncio_loop):
    async with there(tmp_path) as (machine, way):
        with pytest.raises(Unreachable, match="ran no keeper"):
            await looked(launcher(machine, python="/nowhere/python"))
        (machine.folder / "known").write_text("")
        with pytest.raises(Unreachable, match="cannot be reached by SSH: Host key"):
            await looked(way)
        machine.way.cut()
        with pytest.raises(Unreachable, match="cannot be reached by SSH"):
            await looked(way)


async def test_one_whose_line_was_cut_runs_on_and_is_followed_again(tmp_path, jp_asyncio_loop):
    async with there(tmp_path) as (machine, way):
        kernel = await started(way, RUNS)
        machine.way.cut()
        await until(lambda: kernel.line is None)
        kernel.terminate()  # meant also later
        assert alive(kernel)
        machine.way.mend()
        await until(lambda: kernel.poll() is not None)
        assert kernel.poll() == -signal.SIGTERM
        await kernel.close()


async def test_another_server_finds_it_again_and_hears_what_it_missed(tmp_path, caplog, jp_asyncio_loop):
    caplog.set_level(logging.INFO)
    async with there(tmp_path) as (_, way):
        first = await started(way, f"import time\ntime.sleep(1)\nprint('un' + 'heard', flush=True)\n{RUNS}")
        await first.close()
        assert alive(first)
        await asyncio.sleep(1.5)
        assert "unheard" not in caplog.text
        second = await processes.found(way, first.started.folder, 60.0, log)
        assert second.started == first.started
        await until(lambda: "unheard" in caplog.text)
        second.kill()
        await until(lambda: second.poll() is not None)
        await second.close()
        await until(lambda: not Path(first.started.folder).exists())
        with pytest.raises(processes.Gone):
            await processes.found(way, first.started.folder, 60.0, log)


@pytest.mark.parametrize("program", [RUNS, DEAF])
async def test_one_that_nobody_comes_back_to_is_ended(tmp_path, jp_asyncio_loop, program):
    async with there(tmp_path) as (_, way):
        kernel = await started(way, program, keep_s=1.0)
        await asyncio.sleep(2.0)
        assert alive(kernel)  # its server lives
        await kernel.close()
        await until(lambda: not alive(kernel))
        await until(lambda: not Path(kernel.started.folder).exists())


async def test_one_that_cannot_be_reached_for_too_long_counts_as_ended(tmp_path, monkeypatch, jp_asyncio_loop):
    monkeypatch.setattr(processes, "PAUSE_MAX_S", 0.5)
    async with there(tmp_path) as (machine, way):
        kernel = await started(way, RUNS, keep_s=1.0)
        machine.way.cut()
        await until(lambda: kernel.poll() is not None)
        assert kernel.poll() == LOST
        await until(lambda: not alive(kernel))
        await kernel.close()


async def test_it_ends_with_its_keeper(tmp_path, jp_asyncio_loop):
    async with there(tmp_path) as (_, way):
        kernel = await started(way, DEAF)
        psutil.Process(kernel.pid).parent().kill()
        await until(lambda: not alive(kernel))
        await until(lambda: kernel.poll() is not None)
        assert kernel.poll() == LOST
        await kernel.close()


async def test_one_whose_messages_would_not_be_encrypted_is_ended(tmp_path, jp_asyncio_loop):
    async with there(tmp_path) as (_, way):
        kernel = await started(way, PLAIN, "{gpushare_connection_file}")
        await until(lambda: kernel.poll() is not None)
        assert kernel.poll() == -signal.SIGKILL
        assert "NULL instead of CURVE" in kernel.refused
        await kernel.close()


async def test_a_port_here_can_be_reached_at_its_socket_also_after_a_cut(tmp_path, jp_asyncio_loop):
    async def answer(reader, writer):
        writer.write(b"here")
        writer.close()

    async def asked() -> bytes:
        reader, writer = await asyncio.open_unix_connection(kernel.socket)
        try:
            return await reader.read()
        finally:
            writer.close()

    async with there(tmp_path) as (machine, way), await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        kernel = await started(way, RUNS)
        await kernel.bring(server.sockets[0].getsockname()[1])
        assert await asked() == b"here"
        machine.way.cut()
        await until(lambda: kernel.line is None)
        machine.way.mend()
        await until(lambda: kernel.line is not None)
        assert await asked() == b"here"
        kernel.kill()
        await until(lambda: kernel.poll() is not None)
        await kernel.close()


async def test_a_line_comes_back_also_where_no_socket_can_be_brought(tmp_path, jp_asyncio_loop):
    async with there(tmp_path) as (machine, way):
        kernel = await started(way, RUNS)
        os.mkdir(kernel.socket)  # in its way, as an sshd that allows no such streams is
        with pytest.raises(Unreachable):
            await kernel.bring(1)
        os.rmdir(kernel.socket)
        await until(lambda: kernel.line is not None)
        assert kernel.brought is None
        machine.way.cut()
        await until(lambda: kernel.line is None)
        machine.way.mend()
        await until(lambda: kernel.line is not None)
        kernel.kill()
        await until(lambda: kernel.poll() is not None)
        await kernel.close()


def left(*kernels: RemoteProcess) -> list[bool]:
    """Whether the folders of their keepers are there."""
    return [Path(kernel.started.folder).exists() for kernel in kernels]


async def test_what_a_killed_keeper_left_is_removed_at_the_next_start_and_nothing_else(tmp_path, jp_asyncio_loop):
    async with there(tmp_path) as (_, way):
        killed, lives = await started(way, RUNS), await started(way, RUNS)
        psutil.Process(killed.pid).parent().kill()
        await until(lambda: killed.poll() is not None)
        foreign = tempfile.mkdtemp(prefix="gpushare-", dir="/tmp")  # no keeper's
        try:
            assert left(killed, lives) == [True, True]
            third = await started(way, RUNS)
            assert left(killed, lives) == [False, True]
        finally:
            os.rmdir(foreign)  # it is still there
        for kernel in (lives, third):
            kernel.kill()
            await until(lambda kernel=kernel: kernel.poll() is not None)
        for kernel in (killed, lives, third):
            await kernel.close()
