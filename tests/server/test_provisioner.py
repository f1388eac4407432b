"""What a provisioner keeps when somebody persists kernels, and what the doctor's route answers."""

from __future__ import annotations

import msgspec

from jupyter_gpushare.model import Binding


async def test_a_persisted_kernel_knows_its_binding_again(kernels):
    started = await kernels.start_kernel()
    provisioner = kernels.get_kernel(started).provisioner
    info = msgspec.json.decode(msgspec.json.encode(await provisioner.get_provisioner_info()))
    before = provisioner._binding
    provisioner._binding = None

    await provisioner.load_provisioner_info(info)

    assert isinstance(provisioner._binding, Binding)
    assert provisioner._binding == before
    assert len(before.devices) == 1


async def test_the_panel_may_ask_the_doctor(kernels, gpu):
    findings = await gpu("doctor", request_timeout=60)
    assert {"driver", "library", "ledger"} & {finding["check"] for finding in findings}
