"""A real server and real kernels on stand-ins of NVML and CUDA: an idle session makes room and comes back."""

from __future__ import annotations

import pytest

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import serving
from tests.serving import on_stand_ins, until
from tests.standin import cuda
from tests.standin import nvml as standin

pytestmark = pytest.mark.alone

SIZE = 2**30  # on a small device: the host that runs the tests must have room for it
SECRET = "secret = 'it is still here'"


@pytest.fixture
def library(tmp_path):
    return cuda.build(standin.build(tmp_path / "libraries"))


def test_an_idle_session_is_parked_when_another_waits_and_comes_back_at_its_next_cell(library, tmp_path):
    scenario = tmp_path / "scenario"
    memory: dict[int, int] = {}  # bytes by pid, as if their cells had allocated it

    def say() -> None:
        used = sum(memory.values())
        small = {"memory_total": 2 * SIZE, "memory_reserved": 0}
        device = standin.gpu(0, **small, memory_used=used, processes=[list(item) for item in memory.items()])
        standin.write_scenario(scenario, standin.scenario(device))

    say()
    settings = on_stand_ins(tmp_path, server_name="alpha") | {"Policy": {"idle_after_s": 1.0, "warn_before_s": 1.0}}
    environment = standin.environment(library, scenario)
    with serving("alice", tmp_path, lab=False, settings=settings, environment=environment) as server:

        def device() -> dict:
            (found,) = server.gpu("GET", "status")["servers"][0]["devices"]
            return found

        until(lambda: server.gpu("GET", "status")["servers"] and device()["can_park"])
        assert device()["cannot_park"] is None

        first = Notebook(server, "first.ipynb")
        first.run(SECRET)
        pid = int(first.run("import os; print(os.getpid())").text)
        memory[pid] = SIZE
        say()
        until(lambda: [part["memory_used"] for part in first.session()["devices"]] == [SIZE])

        second = Notebook(server, "second.ipynb")
        second.act("request", {"memory": "1536MiB"})
        waiting = second.start("print('it ran')")
        parked = first.until("it makes room", "parked")
        assert parked["parked_bytes"] == SIZE
        assert cuda.state(scenario, pid) == cuda.CHECKPOINTED
        assert waiting.wait(30).text.endswith("it ran\n")  # before it, how long it waited
        until(lambda: device()["memory_used"] == 0)

        def comes_back() -> bool:
            assert first.run("print(secret)").text.endswith("it is still here\n")
            return cuda.state(scenario, pid) == cuda.RUNNING

        until(comes_back)  # with its first cell, or the next: one that came through a gate still open used no GPU
        back = first.until("it is back", "active", "idle")
        assert (back["parked_bytes"], [part["uuid"] for part in back["devices"]]) == (None, [device()["uuid"]])
        until(lambda: device()["memory_used"] == SIZE)
        first.close()
        second.close()
