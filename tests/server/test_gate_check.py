"""Time is weighed only where a check of this machine says that a lock is cheap."""

from __future__ import annotations

import json
from contextlib import ExitStack

from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.config import GPUShare
from jupyter_gpushare.model import Device
from jupyter_gpushare.node.checkpoint_helper import Capability
from jupyter_gpushare.server.agents import of_this_machine

HERE = Device(uuid="GPU-0", index=0, model="A100")


def gate(tmp_path, file, capability=None):
    """What the machine's agent weighs time by."""
    config = GPUShare(gate_check=str(file), lock_dir=str(tmp_path / "locks"))
    with ExitStack() as ends:
        agent, parking = of_this_machine(config, LocalBus(), "alice", tmp_path, ends.callback, prove=False)
        parking._background, parking.capability = False, capability
        return agent._gate, None if agent._gate is None else agent._gate.cheap(HERE)


def test_without_a_check_nobody_is_ever_locked(tmp_path):
    assert gate(tmp_path, "") == (None, None)
    assert gate(tmp_path, tmp_path / "none.json") == (None, None)


def test_a_check_of_this_gpu_and_driver_turns_it_on_once_the_driver_is_known(tmp_path):
    costs = {f"{call}_{which}_s": 0.001 for call in ("lock", "unlock") for which in ("median", "longest")}
    report = {"model": "A100", "driver": "580.65", "steps": {"gate": {"state": "measured", "result": costs}}}
    file = tmp_path / "check.json"
    file.write_text(json.dumps(report))
    can = Capability(bindings="13.5.0", cuda=13000, driver="580.65", machine="x86_64")
    assert gate(tmp_path, file)[1] is False
    assert gate(tmp_path, file, can)[1] is True
    assert gate(tmp_path, file, Capability(error="No driver."))[1] is False
    assert gate(tmp_path, file, Capability(cuda=13000, driver="590.1", machine="x86_64"))[1] is False
