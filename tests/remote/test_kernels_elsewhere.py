"""A real Jupyter server's kernels on another machine: as those here, but that their messages are encrypted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("asyncssh")
pytest.importorskip("nats")

from jupyter_gpushare.remote.keeper import PORTS
from tests.remote.cells import run, told
from tests.remote.sshd import Relay

pytestmark = pytest.mark.timeout(300)

SECRET = "a-word-that-is-in-no-program"


async def session_of(gpu, kernel: str) -> dict:
    return next(one for one in (await gpu("status"))["sessions"] if one["id"] == kernel)


async def test_a_kernel_starts_on_the_machine_of_its_gpu(kernels, gpu, until, beta, tmp_path):
    folder = tmp_path / "root_dir" / "work"
    folder.mkdir()
    kernel = await kernels.start_kernel(path="work")
    manager = kernels.get_kernel(kernel)
    pid, cwd, mask = await told(manager, "[os.getpid(), os.getcwd(), os.environ['CUDA_VISIBLE_DEVICES']]")
    assert (manager.ip, pid, cwd) == (beta.ip, manager.provisioner.pid, str(folder))
    assert psutil.Process(pid).parent().pid != os.getpid()

    servers = {server["name"]: server for server in (await gpu("status"))["servers"]}
    assert mask == servers["beta"]["devices"][0]["uuid"]
    await run(manager, "from jupyter_gpushare.simulated import allocate\nheld = allocate('6GiB')")

    async def attributed():
        session = await session_of(gpu, kernel)
        return session["server"] == "beta" and session["devices"][0]["memory_used"]

    assert await until(attributed) >= 6 * 2**30
    await kernels.shutdown_kernel(kernel)
    await until(lambda: not psutil.pid_exists(pid))


async def test_its_user_can_ask_from_there_as_from_here(kernels, gpu):
    kernel = await kernels.start_kernel()
    manager = kernels.get_kernel(kernel)
    asked = "import jupyter_gpushare\nprint(jupyter_gpushare.session().status()['id'])"
    assert await run(manager, asked) == kernel


async def test_its_gate_is_told_there_so_that_a_cell_need_not_ask(kernels, until):
    kernel = await kernels.start_kernel()
    manager = kernels.get_kernel(kernel)
    file = Path(await told(manager, "os.environ['GPUSHARE_GATE']"))
    assert file.parent == Path(manager.provisioner.process.started.folder)
    await until(lambda: file.read_bytes() == b"o\0")
    gate = manager.provisioner._desk._kernels[kernel].gate
    gate.trim()
    await until(lambda: file.read_bytes() == b"o\1")
    gate.set(b"a")
    await until(lambda: file.read_bytes() == b"a\1")


async def test_a_cell_is_interrupted(kernels):
    manager = kernels.get_kernel(await kernels.start_kernel())
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(60)
        client.execute("print('begun', flush=True)\nimport time\ntime.sleep(600)")
        while (await client.get_iopub_msg(timeout=60))["content"].get("text", "").strip() != "begun":
            continue
        await manager.interrupt_kernel()
        while (message := await client.get_iopub_msg(timeout=60))["msg_type"] != "error":
            continue
        assert message["content"]["ename"] == "KeyboardInterrupt"
    finally:
        client.stop_channels()


async def test_a_restart_keeps_machine_ports_and_device(kernels, gpu, until):
    kernel = await kernels.start_kernel()
    manager = kernels.get_kernel(kernel)
    before, address = await told(manager, "os.getpid()"), (manager.ip, manager.ports, manager.curve_publickey)
    device = (await session_of(gpu, kernel))["devices"]
    await run(manager, "kept = 1")
    await kernels.restart_kernel(kernel)

    assert (manager.ip, manager.ports, manager.curve_publickey) == address
    assert await told(manager, "'kept' in globals()") is False
    assert await told(manager, "os.getpid()") != before
    assert (await session_of(gpu, kernel))["devices"][0]["uuid"] == device[0]["uuid"]
    await until(lambda: not psutil.pid_exists(before))


async def test_one_that_dies_is_started_again_there(kernels, until):
    manager = kernels.get_kernel(await kernels.start_kernel())
    before = await told(manager, "os.getpid()")
    os.kill(before, signal.SIGKILL)
    await until(lambda: manager.provisioner.pid != before, 60)
    assert await told(manager, "os.getpid()") == manager.provisioner.pid


@pytest.mark.parametrize(
    ("ends", "code"),
    [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV)],
)
async def test_its_exit_code_is_that_of_its_process(kernels, until, ends, code):
    manager = kernels.get_kernel(await kernels.start_kernel())
    client, process = manager.client(), manager.provisioner.process
    client.start_channels()
    await client.wait_for_ready(60)
    client.execute(f"import os, signal\n{ends}")
    await until(lambda: process.poll() is not None)
    client.stop_channels()
    assert process.poll() == code


async def test_a_signal_and_a_kill_reach_its_whole_group(kernels, until):
    kernel = await kernels.start_kernel()
    manager = kernels.get_kernel(kernel)
    child = await told(manager, "subprocess.Popen(['sleep', '600']).pid", "subprocess")
    await manager.signal_kernel(signal.SIGINT)
    await until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    pid = manager.provisioner.pid
    await kernels.shutdown_kernel(kernel, now=True)
    await until(lambda: not psutil.pid_exists(pid))


async def relayed(manager, run_in) -> bytes:
    """All that is heard on the wire while that runs over it."""
    async with contextlib.AsyncExitStack() as ends:
        relays = {}
        for name in PORTS:
            relays[name] = Relay((manager.ip, getattr(manager, name)), "127.0.0.3")
            await relays[name].start()
            ends.push_async_callback(relays[name].stop)
        await run_in(ip="127.0.0.3", **{name: relay.port for name, relay in relays.items()})
        return b"".join(bytes(relay.heard) for relay in relays.values())


async def test_who_listens_on_the_wire_hears_nothing_of_its_messages(kernels):
    manager = kernels.get_kernel(await kernels.start_kernel())
    heard = await relayed(manager, lambda **way: run(manager, f"print('{SECRET}')", **way))
    assert len(heard) > 1000
    assert b"execute_request" not in heard
    assert SECRET.encode() not in heard
    for secret in (manager.session.key, manager.curve_secretkey, manager.curve_publickey):
        assert secret not in heard


class TestHere:
    @pytest.fixture
    def wanted(self):
        return {"constraints": {"server": "here"}}

    async def test_the_same_listener_hears_all_of_a_kernel_without_keys(self, kernels):
        manager = kernels.get_kernel(await kernels.start_kernel())
        heard = await relayed(manager, lambda **way: run(manager, f"print('{SECRET}')", **way))
        assert b"execute_request" in heard
        assert SECRET.encode() in heard

    async def test_who_wants_it_here_gets_it_here(self, kernels, gpu):
        kernel = await kernels.start_kernel()
        assert psutil.Process(kernels.get_kernel(kernel).provisioner.pid).parent().pid == os.getpid()
        assert (await session_of(gpu, kernel))["server"] == "alpha"


async def test_who_has_not_its_keys_cannot_connect(kernels):
    manager = kernels.get_kernel(await kernels.start_kernel())
    await told(manager, "os.getpid()")
    import zmq

    public, secret = zmq.curve_keypair()
    other, _ = zmq.curve_keypair()
    with zmq.Context() as context:
        for keys in ({}, {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": other}):
            with context.socket(zmq.SUB) as listener, context.socket(zmq.DEALER) as asker:
                listener.linger = asker.linger = 0
                for one in (listener, asker):
                    for name, key in keys.items():
                        setattr(one, name, key)
                listener.subscribe(b"")
                listener.connect(f"tcp://{manager.ip}:{manager.iopub_port}")
                asker.connect(f"tcp://{manager.ip}:{manager.shell_port}")
                asker.send_multipart(manager.session.serialize(manager.session.msg("kernel_info_request")))
                assert await run(manager, f"print('{SECRET}')") == SECRET
                await asyncio.sleep(0.5)
                assert not listener.poll(0)
                assert not asker.poll(0)


async def test_a_cut_line_costs_nothing_but_signals_until_it_is_back(kernels, gpu, beta, until):
    kernel = await kernels.start_kernel()
    manager = kernels.get_kernel(kernel)
    process = manager.provisioner.process
    await run(manager, "kept = 42")
    beta.way.cut()
    await until(lambda: process.line is None)
    assert await manager.is_alive()
    assert await told(manager, "kept") == 42  # its messages have ways of their own
    assert (await session_of(gpu, kernel))["devices"]
    beta.way.mend()
    await until(lambda: process.line is not None)
    assert await told(manager, "kept") == 42
    pid = manager.provisioner.pid
    await kernels.shutdown_kernel(kernel)
    await until(lambda: not psutil.pid_exists(pid))


async def test_one_that_is_ended_while_its_machine_is_away_ends_when_that_is_back(kernels, beta, until):
    kernel = await kernels.start_kernel()
    manager = kernels.get_kernel(kernel)
    process, pid = manager.provisioner.process, await told(manager, "os.getpid()")
    psutil.Process(pid).suspend()  # it does not hear that it shall end
    beta.way.cut()
    await until(lambda: process.line is None)
    await kernels.shutdown_kernel(kernel, now=True)
    assert psutil.pid_exists(pid)
    beta.way.mend()
    await until(lambda: not psutil.pid_exists(pid))


class TestNotThere:
    @pytest.fixture
    def wanted(self):
        return {"gpus": 0.5}

    @pytest.mark.parametrize(
        ("traits", "words"),
        [
            ({"remote_python": "/nowhere/python"}, "ran no keeper"),
            ({"remote_servers": {"beta": "ssh://127.0.0.2:1"}}, "cannot be reached by SSH"),
        ],
    )
    async def test_where_it_cannot_be_it_is_here_and_the_log_says_why(self, kernels, gpu, caplog, words):
        shared = []
        for _ in range(2):  # one of them would suit beta better
            kernel = await kernels.start_kernel()
            shared.append((await session_of(gpu, kernel))["server"])
            await run(kernels.get_kernel(kernel), "from jupyter_gpushare.simulated import work\nwork(0.1)")
        assert shared == ["alpha", "alpha"]


async def test_a_kernelspec_that_cannot_encrypt_starts_here_without_that_gpu(kernels, gpu, monkeypatch):
    from jupyter_client.manager import KernelManager

    monkeypatch.setattr(KernelManager, "_kernel_supports_curve_encryption", lambda self: False)
    kernel = await kernels.start_kernel()
    assert sys.executable in psutil.Process(kernels.get_kernel(kernel).provisioner.pid).cmdline()[0]
    assert (await session_of(gpu, kernel))["devices"] == []
