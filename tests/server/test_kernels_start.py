"""Real kernels on simulated devices: what they find in their environment, and when their lease ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest
from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError

from jupyter_gpushare.node.proc import lives

LAUNCH = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


def environment_of(kernels, kernel_id: str) -> dict[str, str]:
    """The variables of a kernel's process, as the system has them."""
    return psutil.Process(kernels.get_kernel(kernel_id).provisioner.pid).environ()


@pytest.fixture
def kernelspec(jp_data_dir):
    """Installs a kernelspec: its name, its command, and whatever else is in its file."""

    def install(name: str, argv: list[str], **fields: object) -> str:
        folder = Path(jp_data_dir) / "kernels" / name
        folder.mkdir(parents=True)
        spec = {"argv": argv, "display_name": name, "language": "python", **fields}
        (folder / "kernel.json").write_text(json.dumps(spec))
        return name

    return install


async def test_a_kernel_starts_with_the_mask_of_its_binding(kernels, gpu):
    kernel_id = await kernels.start_kernel(kernel_name="python3")
    session = await gpu("sessions", kernel_id)
    variables = environment_of(kernels, kernel_id)

    assert session["state"] == "bound"
    assert variables["CUDA_VISIBLE_DEVICES"] == session["devices"][0]["uuid"]
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert variables["GPUSHARE_SESSION"] == kernel_id
    assert variables["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert variables["GPUSHARE_URL"].endswith("/a%40b/gpushare/api/v1/")


async def test_a_kernel_without_a_demand_sees_no_device_and_keeps_its_state_none(kernels, gpu, kernelspec):
    kernel_id = await kernels.start_kernel(kernel_name=kernelspec("none", LAUNCH, metadata={"gpushare": {"gpus": 0}}))

    assert environment_of(kernels, kernel_id)["CUDA_VISIBLE_DEVICES"] == ""
    assert (await gpu("sessions", kernel_id))["state"] == "none"


async def test_a_restart_keeps_the_devices_and_replaces_the_process(kernels, gpu, kernelspec):
    name = kernelspec("whole", LAUNCH, metadata={"gpushare": {"gpus": 1}})
    kernel_id = await kernels.start_kernel(kernel_name=name)
    before, pid = environment_of(kernels, kernel_id), kernels.get_kernel(kernel_id).provisioner.pid

    await kernels.restart_kernel(kernel_id, now=True)
    after = environment_of(kernels, kernel_id)

    assert kernels.get_kernel(kernel_id).provisioner.pid != pid
    assert after["CUDA_VISIBLE_DEVICES"] == before["CUDA_VISIBLE_DEVICES"] != ""
    assert after["GPUSHARE_TOKEN"] == before["GPUSHARE_TOKEN"]
    assert (await gpu("sessions", kernel_id))["state"] == "idle"


async def test_a_kernel_that_was_shut_down_holds_nothing(kernels, gpu, kernelspec):
    kernel_id = await kernels.start_kernel(kernel_name=kernelspec("whole", LAUNCH, metadata={"gpushare": {"gpus": 2}}))
    assert (await gpu("status"))["summary"]["free"] == 0

    await kernels.shutdown_kernel(kernel_id, now=True)

    assert (await gpu("status"))["summary"]["free"] == 2


@pytest.mark.parametrize("wrapped", [False, True])
async def test_the_lease_wins_over_the_kernelspecs_own_mask_also_under_a_wrapper(kernels, gpu, kernelspec, wrapped):
    argv = ["bash", "-c", f'exec {sys.executable} -m ipykernel_launcher -f "$0"', "{connection_file}"]
    name = kernelspec("own-mask", argv if wrapped else LAUNCH, env={"CUDA_VISIBLE_DEVICES": "0", "MINE": "1"})

    kernel_id = await kernels.start_kernel(kernel_name=name)
    variables = environment_of(kernels, kernel_id)

    assert variables["CUDA_VISIBLE_DEVICES"] == (await gpu("sessions", kernel_id))["devices"][0]["uuid"]
    assert variables["MINE"] == "1"


@pytest.mark.parametrize("now", [False, True], ids=["asked", "killed"])
async def test_a_kernel_under_a_wrapper_that_stays_has_the_mask_and_is_gone_with_it(kernels, kernelspec, until, now):
    """B7: `conda run`, `bash -c`: the process that was started is not the kernel, and ending it is not enough."""
    argv = ["bash", "-c", f'{sys.executable} -m ipykernel_launcher -f "$0"; true', "{connection_file}"]
    kernel_id = await kernels.start_kernel(kernel_name=kernelspec("stays", argv))
    wrapper = psutil.Process(kernels.get_kernel(kernel_id).provisioner.pid)
    mask = wrapper.environ()["CUDA_VISIBLE_DEVICES"]

    async def begun() -> list[psutil.Process]:
        return [child for child in wrapper.children() if "ipykernel_launcher" in child.cmdline()]

    (real,) = await until(begun, 60)
    both = {process.pid: process.create_time() for process in (wrapper, real)}

    async def ended() -> bool:
        return not any(lives(*one) for one in both.items())

    assert real.environ()["CUDA_VISIBLE_DEVICES"] == mask != ""
    client = kernels.get_kernel(kernel_id).client()
    client.start_channels()
    await client.wait_for_ready(timeout=60)
    client.stop_channels()

    await kernels.shutdown_kernel(kernel_id, now=now)

    assert await until(ended, 60)


async def test_a_kernel_that_exits_at_once_holds_nothing_after_the_restarter_gave_up(kernels, gpu, kernelspec, until):
    name = kernelspec("crash", [sys.executable, "-c", "raise SystemExit(1)"], metadata={"gpushare": {"gpus": 1}})
    kernel_id = await kernels.start_kernel(kernel_name=name)
    assert (await gpu("status"))["summary"]["free"] == 1

    restarter = kernels.get_kernel(kernel_id)._restarter
    restarter.stop()  # its own clock waits three seconds between two looks
    await until(restarter_gave_up(kernels, kernel_id, restarter))

    assert (await until(lambda: gone(gpu, kernel_id))) is True
    assert (await gpu("status"))["summary"]["free"] == 2


def restarter_gave_up(kernels, kernel_id, restarter):
    async def look() -> bool:
        await restarter.poll()
        restarter.stop()
        return kernel_id not in kernels

    return look


async def gone(gpu, kernel_id: str) -> bool:
    return all(s["id"] != kernel_id or s["state"] == "dead" for s in (await gpu("status"))["sessions"])


async def test_a_command_that_cannot_be_started_holds_nothing_and_says_that_the_start_failed(kernels, gpu, kernelspec):
    name = kernelspec("missing", ["/nonexistent/kernel"], metadata={"gpushare": {"gpus": 1}})

    with pytest.raises(HTTPError, match="The kernel did not start"):
        await kernels.start_kernel(kernel_name=name)

    assert (await gpu("status"))["summary"]["free"] == 2


async def test_a_notebooks_metadata_is_its_kernels_demand_and_its_name_the_label(
    kernels, gpu, jp_serverapp, jp_root_dir
):
    folder = Path(jp_root_dir) / "work"
    folder.mkdir()
    notebook = {
        "cells": [],
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"gpushare": {"gpus": 0.5, "memory": "2GiB"}},
    }
    (folder / "train.ipynb").write_text(json.dumps(notebook))

    model = await jp_serverapp.session_manager.create_session(
        path="work/train.ipynb", name="train.ipynb", type="notebook", kernel_name="python3"
    )
    session = await gpu("sessions", model["kernel"]["id"])

    assert (session["label"], session["path"]) == ("train.ipynb", "work/train.ipynb")
    assert (session["demand"]["gpus"], session["demand"]["memory"]) == (0.5, 2 * 2**30)


@pytest.mark.parametrize(("notebooks", "wanted"), [({}, 0.25), ({"gpus": 0.5}, 0.5), ({"memory": "2GiB"}, 0.25)])
async def test_what_was_chosen_at_the_servers_start_holds_where_the_notebook_says_nothing_else(
    kernels, gpu, jp_serverapp, jp_root_dir, monkeypatch, notebooks, wanted
):
    monkeypatch.setenv("GPUSHARE_DEMAND", "gpus=0.25&model=A100")
    notebook = {"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {"gpushare": notebooks}}
    (Path(jp_root_dir) / "train.ipynb").write_text(json.dumps(notebook))

    model = await jp_serverapp.session_manager.create_session(
        path="train.ipynb", name="train.ipynb", type="notebook", kernel_name="python3"
    )

    demand = (await gpu("sessions", model["kernel"]["id"]))["demand"]
    assert (demand["gpus"], demand["constraints"]["model"]) == (wanted, "A100")


async def test_a_choice_that_cannot_be_used_is_left_out_and_said_and_the_kernel_starts(
    kernels, gpu, monkeypatch, caplog
):
    monkeypatch.setenv("GPUSHARE_DEMAND", "gpus=many")
    demand = (await gpu("sessions", await kernels.start_kernel()))["demand"]
    assert demand["gpus"] == 0.1
    assert any("This demand is not used. GPUSHARE_DEMAND" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("unusable", "said"), [({"gpus": "many"}, "gpus"), ({"gpus": 0.5, "cpus": 4}, "cpus: 4.0")])
async def test_metadata_that_cannot_be_used_is_left_out_and_said_and_the_kernel_starts(
    kernels, gpu, jp_serverapp, jp_root_dir, caplog, unusable, said
):
    notebook = {"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {"gpushare": unusable}}
    (Path(jp_root_dir) / "bad.ipynb").write_text(json.dumps(notebook))

    model = await jp_serverapp.session_manager.create_session(
        path="bad.ipynb", name="bad.ipynb", type="notebook", kernel_name="python3"
    )

    assert (await gpu("sessions", model["kernel"]["id"]))["demand"]["gpus"] == 0.1
    (line,) = [record.getMessage() for record in caplog.records if "This demand is not used" in record.getMessage()]
    assert said in line


async def test_a_client_that_gives_up_leaves_no_place_in_line(kernels, gpu, kernelspec, jp_fetch, until):
    name = kernelspec("whole", LAUNCH, metadata={"gpushare": {"gpus": 2}})
    await kernels.start_kernel(kernel_name=name)

    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch("api", "kernels", method="POST", body=json.dumps({"name": name}), request_timeout=1)
    assert caught.value.code == 599

    async def nobody_waits() -> bool:
        return (await gpu("status"))["summary"]["waiting"] == 0

    await until(nobody_waits)
    assert len(kernels.list_kernel_ids()) == 1


async def test_cells_are_bursts_and_the_lease_is_granted_by_the_first(kernels, gpu, until):
    kernel_id = await kernels.start_kernel(kernel_name="python3")
    client = kernels.get_kernel(kernel_id).client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=30)
        assert (await gpu("sessions", kernel_id))["state"] == "bound"

        client.execute("import time; time.sleep(2)")

        async def active() -> bool:
            return (await gpu("sessions", kernel_id))["state"] == "active"

        async def idle() -> bool:
            return (await gpu("sessions", kernel_id))["state"] == "idle"

        await until(active)
        await until(idle)
    finally:
        client.stop_channels()


async def test_what_was_decided_about_a_session_is_an_event_that_keeps_to_its_schema(
    kernels, jp_serverapp, kernelspec, until
):
    heard = []

    async def hear(logger, schema_id: str, data: dict) -> None:
        heard.append(data)

    schema = "https://schema.jupyter-gpushare.org/decision/v1"
    jp_serverapp.event_logger.add_listener(schema_id=schema, listener=hear)

    kernel_id = await kernels.start_kernel(kernel_name=kernelspec("whole", LAUNCH, metadata={"gpushare": {"gpus": 2}}))

    async def placed() -> list[dict]:
        return [event for event in heard if event["act"] == "place"]

    (event, *_) = await until(placed)
    assert (event["session"], len(event["devices"]), event["lease"]) == (kernel_id, 2, True)
