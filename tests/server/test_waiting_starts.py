"""Starts that wait for whole devices over real HTTP: three at a time, one ticket per notebook."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest

from jupyter_gpushare.demo.servers import DemoFailed, serving
from tests.serving import ALONE, until

pytestmark = pytest.mark.alone

SETTINGS = {
    "ServerApp": ALONE,
    "GPUShare": {"simulated_inventory": "1x1xA100", "start_wait_s": 60, "default_gpus": 1, "default_exclusive": True},
}


def start(server, path: str):
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    return server.ask("POST", "api/sessions", body, timeout_s=90)["kernel"]["id"]


def waits_until_the_end(server, path: str) -> None:
    with pytest.raises(DemoFailed, match="stopping"):
        start(server, path)


def begin(server, path: str) -> Future[str]:
    """A start that goes on beside the test."""
    kernel: Future[str] = Future()

    def run() -> None:
        try:
            kernel.set_result(start(server, path))
        except DemoFailed as error:
            kernel.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return kernel


def test_three_starts_wait_and_a_fourth_starts_without_a_gpu_and_keeps_its_place(tmp_path):
    with serving("alice", tmp_path, lab=False, settings=SETTINGS) as server:
        start(server, "holder.ipynb")
        waiting = []
        for number in range(3):
            thread = threading.Thread(target=waits_until_the_end, args=(server, f"{number}.ipynb"), daemon=True)
            thread.start()
            waiting.append(thread)
            until(lambda count=number + 1: server.gpu("GET", "status")["summary"]["waiting"] == count)

        asked = time.monotonic()
        fourth = start(server, "fourth.ipynb")
        took = time.monotonic() - asked

        session = server.gpu("GET", f"sessions/{fourth}")
        assert took < 15
        assert session["devices"] == []
        assert session["queue_position"] == 4
        assert all(thread.is_alive() for thread in waiting)
        server.process.terminate()
        server.process.wait(10)
        for thread in waiting:
            thread.join(5)


def test_a_second_start_of_a_notebook_takes_over_the_firsts_place_in_line(tmp_path):
    with serving("alice", tmp_path, lab=False, settings=SETTINGS) as server:

        def queue() -> list[str]:
            return server.gpu("GET", "status")["queue"]

        holder = start(server, "holder.ipynb")
        first = begin(server, "twice.ipynb")
        until(lambda: len(queue()) == 1)
        behind = begin(server, "behind.ipynb")
        (ahead, waits_behind) = until(lambda: queue() if len(queue()) == 2 else None)

        second = begin(server, "twice.ipynb")
        started = server.gpu("GET", f"sessions/{first.result(30)}")

        assert (started["id"], started["devices"], started["queue_position"]) == (ahead, [], None)
        (taken_over, still_behind) = until(lambda: queue() if ahead not in queue() else None)
        assert still_behind == waits_behind
        assert not second.done()

        server.ask("DELETE", f"api/kernels/{holder}")
        got = server.gpu("GET", f"sessions/{second.result(30)}")
        assert (got["id"], got["label"], len(got["devices"])) == (taken_over, "twice.ipynb", 1)
        assert not behind.done()
        server.process.terminate()
        server.process.wait(10)
        assert "stopping" in str(behind.exception(10))
