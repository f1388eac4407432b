"""The step that counts: a real notebook kernel parked and resumed by the product, its tensors compared bit by bit."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import psutil

from jupyter_gpushare.model import Park, Resume
from jupyter_gpushare.node.backend import Target
from jupyter_gpushare.node.checkpoint import CheckpointMechanism
from jupyter_gpushare.node.checkpoint_driver import HelperDriver

from .bench import ROOT, Impossible, Options, need_room, seen

TORCH = """
import hashlib, torch
tensors = [torch.randn({words}, device="cuda", dtype=torch.float32) for _ in range(4)]
tensors.append(torch.arange({words}, device="cuda", dtype=torch.int32))
torch.cuda.synchronize()
def digest():
    return [hashlib.sha256(each.cpu().numpy().tobytes()).hexdigest() for each in tensors]
before = digest()
"""
PLAIN = """
import sys
sys.path.insert(0, {root!r})
from tests.gpu.cuda import Cuda
cuda = Cuda()
tensors = [(cuda.allocate(4 * {words}), seed) for seed in (1, 2, 3, 4, 5)]
for at, seed in tensors:
    cuda.fill(at, 4 * {words}, seed)
def digest():
    return [cuda.differing(at, 4 * {words}, seed) for at, seed in tensors]
before = digest()
"""


def notebook(options: Options) -> dict[str, Any]:
    """Tensors of 1 GB in all, in a kernel of this interpreter. Torch where it is installed, else plain CUDA."""
    from jupyter_client.manager import start_new_kernel

    words = options.unit // 20
    need_room(options, options.unit)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": options.device}
    manager, client = start_new_kernel(startup_timeout=60, env=environment, extra_arguments=["--quiet"])
    mechanism = CheckpointMechanism(HelperDriver(), background=False)
    try:
        torch = _run(client, "import torch; print(torch.cuda.is_available())", fails=True) == "True"
        _run(client, (TORCH if torch else PLAIN).format(words=words, root=str(ROOT)))
        mechanism.begin()
        pid = manager.provisioner.pid
        found = {"tensors": "torch" if torch else "plain CUDA", "bytes": 20 * words}
        return found | _there_and_back(options, mechanism, client, pid)
    finally:
        mechanism.close()
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _there_and_back(options: Options, mechanism: CheckpointMechanism, client: Any, pid: int) -> dict[str, Any]:
    device = seen(options.device)
    cannot = mechanism.cannot(device)
    if cannot is not None:
        raise Impossible(cannot)
    memory = next((process.memory for process in device.processes if process.pid == pid), None)
    target = Target(pid, psutil.Process(pid).create_time(), {device.uuid: memory})
    began = time.monotonic()
    parked = mechanism.park(Park(session="check"), (target,))
    found: dict[str, Any] = {"park_s": time.monotonic() - began}
    if not parked.ok:
        return found | {"refused": "park", "words": parked.message}
    found["parked_bytes"] = parked.bytes
    found["listed_while_parked"] = pid in {process.pid for process in seen(options.device).processes}
    found["cpu_cell_runs_while_parked"] = _run(client, "print(6 * 7)") == "42"
    began = time.monotonic()
    resumed = mechanism.resume(Resume(session="check", devices={device.uuid: device.uuid}, memory=parked.bytes or 0))
    found["resume_s"] = time.monotonic() - began
    if not resumed.ok:
        return found | {"refused": "resume", "words": resumed.message}
    same = json.loads(
        _run(client, "import json; after = digest(); print(json.dumps([a == b for a, b in zip(before, after)]))")
    )
    works = _run(client, "tensors[0]; print('works')") == "works"
    return found | {"tensors_equal": all(same) and len(same) == 5, "works_after": works}


def _run(client: Any, code: str, fails: bool = False) -> str:
    """What a cell prints. Raises Impossible where it fails, unless it may."""
    printed: list[str] = []

    def heard(message: dict[str, Any]) -> None:
        if message["header"]["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=60, output_hook=heard)
    if reply["content"]["status"] != "ok" and not fails:
        raise Impossible(f"A cell failed: {reply['content'].get('evalue', '')}")
    return "".join(printed).strip()
