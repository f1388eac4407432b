"""Restarts under a panel that never stops asking."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import zmq

SMALL = Path(__file__).with_name("small_kernel.py")
RESTARTS = 50


async def test_fifty_restarts_under_a_panel_that_polls_are_clean_and_the_kernel_is_never_asked_for_it(
    kernels, gpu, jp_data_dir, tmp_path, until
):
    """B12: what is shown of a session comes from what is known of it, not over the kernel's channels."""
    asked = tmp_path / "asked"
    folder = Path(jp_data_dir) / "kernels" / "small"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-S", str(SMALL), "{connection_file}", str(asked), str(Path(zmq.__file__).parents[1])]
    spec = {"argv": argv, "display_name": "small", "language": "none", "metadata": {"gpushare": {"gpus": 1}}}
    (folder / "kernel.json").write_text(json.dumps(spec))
    kernel_id = await kernels.start_kernel(kernel_name="small")
    devices = (await gpu("sessions", kernel_id))["devices"]
    polls, dead = [], []
    kernels.add_restart_callback(kernel_id, lambda: dead.append(kernel_id), "restart")  # by itself: after a death
    kernels.add_restart_callback(kernel_id, lambda: dead.append(kernel_id), "dead")

    async def poll() -> None:
        while True:
            status = await gpu("status")
            polls.append([session["state"] for session in status["sessions"]])
            await gpu("sessions", kernel_id, "why")
            await asyncio.sleep(0.02)

    async def started(times: int) -> bool:
        return asked.exists() and asked.read_text().split().count("started") == times

    panel = asyncio.create_task(poll())
    pids = {kernels.get_kernel(kernel_id).provisioner.pid}
    await until(lambda: started(1), 60)
    for life in range(RESTARTS):
        await asyncio.wait_for(kernels.restart_kernel(kernel_id), 60)
        await until(lambda life=life: started(life + 2), 60)
        pids.add(kernels.get_kernel(kernel_id).provisioner.pid)
    panel.cancel()
    await asyncio.wait([panel])
    assert panel.cancelled(), panel.exception()

    assert len(pids) == RESTARTS + 1
    assert dead == []
    assert [one["uuid"] for one in (await gpu("sessions", kernel_id))["devices"]] == [one["uuid"] for one in devices]
    assert len(polls) > RESTARTS
    assert all(len(states) == 1 and states[0] not in ("dead", "lost") for states in polls)
    assert set(asked.read_text().split()) <= {"started", "kernel_info_request", "shutdown_request"}  # the server's own
