"""A notebook's pool on three simulated servers: a real Jupyter server and kernel, real Dask, ranks as processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time

import psutil
import pytest

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

from tests.remote.cells import run

pytestmark = pytest.mark.timeout(400)
WAIT_S = 120.0


@pytest.fixture
def jp_server_config(tmp_path):
    return {
        "ServerApp": {
            "jpserver_extensions": {"jupyter_gpushare": True, "jupyter_server_terminals": False},
            "allow_unauthenticated_access": False,
        },
        "GPUShare": {"devices": "simulated", "simulated_inventory": "3x2xA100"},
    }


async def until(what, timeout_s: float = 60.0):
    deadline = time.monotonic() + timeout_s
    while not (answer := await what()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        await asyncio.sleep(0.1)
    return answer


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def told(manager, expression: str):
    """The value of an expression there; what Dask logs meanwhile comes before it."""
    said = await run(manager, f"import json, os\nprint()\nprint('told', json.dumps({expression}))", WAIT_S)
    return json.loads(next(line for line in said.splitlines() if line.startswith("told ")).removeprefix("told "))


async def free(gpu) -> bool:
    """No pool lives, so none holds a device."""
    seen = await gpu("status")
    return not [one for one in seen["sessions"] if one["id"].endswith(".pool") and one["state"] != "dead"]


async def test_dask_computes_over_three_servers_survives_a_worker_and_leaves_nothing(kernels, gpu):
    kernel = await kernels.start_kernel()
    manager = kernels.get_kernel(kernel)
    said = await run(manager, "%gpu pool 5 --engine dask", WAIT_S)
    assert "Error" not in said, said
    seen = await gpu("sessions", kernel, "pool")
    assert sorted(len(member["devices"]) for member in seen["members"]) == [1, 2, 2]
    assert seen["state"] == "running"

    session = await gpu("sessions", f"{kernel}.pool")
    assert len(session["devices"]) == 5

    masks = "sorted(client.run(lambda: __import__('os').environ['CUDA_VISIBLE_DEVICES']).values())"
    assert await told(manager, masks) == sorted(uuid for member in seen["members"] for uuid in member["devices"])
    assert await told(manager, "sum(client.gather(client.map(lambda x: x * x, range(200))))") == sum(
        x * x for x in range(200)
    )

    pids = await told(manager, "list(client.run(lambda: __import__('os').getpid()).values())")
    await run(manager, "import time\nfs = client.map(lambda x: (time.sleep(0.05), x)[1], range(100), pure=False)")
    os.kill(pids[0], signal.SIGKILL)
    assert await told(manager, "sum(client.gather(fs))") == sum(range(100))
    await run(manager, "client.wait_for_workers(5, timeout=60)", WAIT_S)

    await run(manager, "%gpu pool end", WAIT_S)
    await until(lambda: free(gpu))
    assert not any(alive(pid) for pid in pids)


RANKS = """
import json, os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(where) as door:
        met = [0]
        for _ in range(world - 1):
            line, _ = door.accept()
            with line:
                met.append(int(line.recv(16)))
    print("met", json.dumps(sorted(met)))
else:
    import time
    while True:
        try:
            with socket.create_connection(where) as line:
                line.sendall(str(rank).encode())
            break
        except OSError:
            time.sleep(0.1)
print(json.dumps([rank, world, int(os.environ["LOCAL_RANK"]), os.environ["CUDA_VISIBLE_DEVICES"]]))
"""


async def test_ranks_meet_at_the_master_each_with_its_own_gpu(kernels, gpu, tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    manager = kernels.get_kernel(await kernels.start_kernel())
    await run(manager, "%gpu pool 4 --engine torchrun", WAIT_S)
    said = await run(manager, f"print(client({str(script)!r}))", WAIT_S)
    lines = [line.partition("] ")[2] for line in said.splitlines() if line.startswith("[")]
    assert "met [0, 1, 2, 3]" in lines
    ranks = sorted(json.loads(line) for line in lines if line.startswith("["))
    assert [one[:3] for one in ranks] == [[0, 4, 0], [1, 4, 1], [2, 4, 0], [3, 4, 1]]
    assert len({one[3] for one in ranks}) == 4
    assert all(f"{rank}: 0" in said for rank in range(4))

    failing = "import os, time\ndef work():\n    os._exit(3) if os.environ['RANK'] == '1' else time.sleep(600)"
    said = await run(manager, f"{failing}\nclient(work)", WAIT_S)
    assert "rank 1 with 3" in said


async def test_two_pools_that_together_exceed_the_cluster_take_turns_whole(kernels, gpu):
    one, two = await kernels.start_kernel(), await kernels.start_kernel()
    await gpu("sessions", one, "pool", method="POST", body={"gpus": 4})

    async def state(kernel: str) -> dict:
        return await gpu("sessions", kernel, "pool")

    async def has_all(kernel: str = one) -> bool:
        return sum(len(member["devices"]) for member in (await state(kernel))["members"]) == 4

    await until(has_all)
    await gpu("sessions", two, "pool", method="POST", body={"gpus": 4})
    await asyncio.sleep(2)
    seen = await state(two)
    assert (seen["state"], seen["members"]) == ("waiting", [])
    await gpu("sessions", one, "pool", "end", method="POST")
    await until(lambda: has_all(two))


async def test_it_ends_with_its_kernel_and_what_cannot_be_had_is_said(kernels, gpu):
    kernel = await kernels.start_kernel()
    manager = kernels.get_kernel(kernel)
    assert "together have fewer" in (
        await run(manager, "import jupyter_gpushare\njupyter_gpushare.session().pool(7)", WAIT_S)
    )
    await run(manager, "%gpu pool 3 --engine dask", WAIT_S)
    pids = await told(manager, "list(client.run(lambda: __import__('os').getpid()).values())")
    os.kill(await told(manager, "os.getpid()"), signal.SIGKILL)
    await until(lambda: free(gpu))
    assert not any(alive(pid) for pid in pids)
