"""What the doctor finds, for the facts of machines that we do not have."""

from __future__ import annotations

import json
import os
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from jupyter_gpushare import doctor
from jupyter_gpushare.doctor import as_text, jupyter, keeping, machine
from jupyter_gpushare.doctor.configured import mps_folder, settings
from jupyter_gpushare.doctor.finding import Finding
from jupyter_gpushare.doctor.machine import Gpus
from jupyter_gpushare.model import Device, Process
from jupyter_gpushare.node.checkpoint_helper import Capability


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


A100 = Device(uuid="GPU-1", index=0, model="A100")


# --- driver and NVML ---


def test_the_driver_is_known_by_what_it_shows_under_proc(tmp_path):
    write(
        tmp_path / "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 13.2.0\n",
    )
    found = machine.driver(tmp_path, None)
    assert (found.state, found.finding) == ("ok", "NVIDIA driver 580.65.06.")


def test_a_card_without_a_driver_is_broken_and_no_card_is_only_missing(tmp_path):
    write(tmp_path / "sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n")
    assert machine.driver(tmp_path, None).state == "missing"
    write(tmp_path / "sys/bus/pci/devices/0000:07:00.0/vendor", "0x10de\n")
    write(tmp_path / "sys/bus/pci/devices/0000:07:00.0/class", "0x030200\n")
    found = machine.driver(tmp_path, None)
    assert found.state == "broken"
    assert "modprobe nvidia" in found.fix


@pytest.mark.parametrize(
    ("code", "state", "word"),
    [(18, "broken", "reboot"), (4, "broken", "/dev/nvidiactl"), (12, "missing", "NVIDIA driver")],
)
def test_why_nvml_says_nothing_is_found_with_its_fix(code, state, word):
    found = machine.library(Gpus(absent=machine.nvml.absent(SimpleNamespace(value=code))))
    assert found.state == state
    assert word in found.fix


@pytest.mark.parametrize(
    ("providers", "state"),
    [
        ({"nvidia-ml-py": "13.0"}, "ok"),
        ({"nvidia-ml-py": "13.0", "pynvml": "11.5"}, "warning"),
        ({"nvidia-ml-py3": "7.352"}, "warning"),
        ({}, "warning"),
    ],
)
def test_the_package_behind_pynvml_is_named(providers, state):
    found = machine.binding(providers, SimpleNamespace(origin="/env/pynvml.py"))
    assert found.state == state
    assert all(f"{name} {version}" in found.finding for name, version in providers.items())


def test_without_any_pynvml_the_fix_is_to_install_it():
    assert (machine.binding({}, None).state, machine.binding({}, None).fix) == ("broken", "pip install nvidia-ml-py")


def test_the_stand_in_library_is_read_with_its_minors_and_a_hanging_one_is_given_up(nvml_standin, standin):
    nvml_standin.say(standin.gpu(0, minor=3), standin.gpu(1, minor=1))
    told = nvml_standin.probe().ask("doctor 10")
    assert (told["driver"], told["minors"], len(told["devices"])) == ("580.65.06", [3, 1], 2)
    nvml_standin.say(standin.gpu(0), hang={"nvmlDeviceGetCount": 1})
    assert "did not answer" in nvml_standin.probe().ask("doctor 0.2")["absent"]


def test_each_device_that_is_not_well_is_a_finding_of_its_own():
    shared = Device(
        uuid="GPU-2", index=1, model="A100", sharing="exclusive", reason="Compute mode EXCLUSIVE_PROCESS: …"
    )
    lost = Device(uuid="GPU-3", index=2, model="A100", state="lost", reason="The GPU is lost.")
    found = machine.devices(Gpus((A100, shared, lost)))
    assert [one.state for one in found] == ["ok", "warning", "broken"]
    assert found[1].fix == "nvidia-smi -i GPU-2 -c DEFAULT"
    assert found[2].cause == "The GPU is lost."


# --- device nodes ---


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
        write(tmp_path / "dev" / name)
    return tmp_path


def test_devices_that_can_be_opened_are_well(files):
    assert machine.nodes(files, (0, 1)).state == "ok"


def test_a_listed_gpu_without_its_file_is_hidden_by_isolation(files):
    (files / "dev/nvidia1").unlink()
    found = machine.nodes(files, (0, 1))
    assert (found.state, found.finding) == ("broken", "/dev/nvidia1 not there, though NVML lists the GPU.")
    assert "isolation" in found.cause


def test_a_gpu_that_nvml_counts_and_cannot_open_is_known_by_the_kernel_modules_own_list(files):
    """C10: NVML opens the same files, so of the very GPU that is hidden it tells no number."""
    for bus, minor in (("0000:07:00.0", 0), ("0000:08:00.0", 1)):
        text = f"Model: \t\t NVIDIA A100\nIRQ:   \t\t 54\nDevice Minor: \t {minor}\n"
        write(files / "proc/driver/nvidia/gpus" / bus / "information", text)
    (files / "dev/nvidia1").unlink()

    class NVMLError(Exception):
        value = 4  # no permission

    def handle(number):
        if number == 1:
            raise NVMLError
        return number

    binding = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetMinorNumber=lambda handle: 0,
        nvmlSystemGetDriverVersion=lambda: "580.65",
    )
    hidden = replace(A100, uuid="GPU-2", index=1, state="unknown")
    found = machine._told(binding, (A100, hidden), files)
    assert found.minors == (0, 1)
    assert machine.nodes(files, found.minors).finding == "/dev/nvidia1 not there, though NVML lists the GPU."


def test_a_file_that_may_not_be_opened_is_a_matter_of_permissions(files):
    found = machine.nodes(files, (0, 1), may=lambda path, mode: path.name != "nvidia0")
    assert (found.state, found.finding) == ("broken", "/dev/nvidia0 may not be opened by this user (EACCES).")
    assert "video" in found.fix


def test_windows_hosts_have_one_file_for_all(tmp_path):
    write(tmp_path / "dev/dxg")
    assert machine.nodes(tmp_path, (0,)).state == "ok"


def test_without_gpus_no_files_are_missed(tmp_path):
    assert machine.nodes(tmp_path, ()).state == "missing"


# --- mask, MPS, MIG, checkpoint ---


@pytest.mark.parametrize(
    ("environ", "state", "words"),
    [
        ({}, "ok", "all devices"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "ok", "1 of 1"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-9"}, "warning", "0 of 1"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "warning", "0 of 1"),
    ],
)
def test_the_inherited_mask_is_said_in_numbers(environ, state, words):
    found = machine.inherited_mask(environ, (A100,))
    assert found.state == state
    assert words in found.finding


def test_our_mps_servers_are_looked_for_in_the_folder_that_is_configured(tmp_path):
    own = mps_folder(str(tmp_path / "chosen"), tmp_path)
    assert own == tmp_path / "chosen"
    write(own / "gpushare-4e9f2d11-aaaa/pipe/nvidia-cuda-mps-control.pid", "4711\n")
    write(own / "gpushare-5e9f2d11-aaaa/pipe/nvidia-cuda-mps-control.pid", "4712\n")
    told = machine.mps({}, own, alive={4711, 4712}.__contains__)
    assert (told.state, told.finding) == ("ok", f"2 control daemons of ours under {own}.")
    told = machine.mps({}, own, alive=lambda pid: False)
    assert (told.state, told.finding) == (
        "missing",
        f"Not running under {own}. Devices are shared by time slices.",
    )


def test_an_mps_daemon_of_somebody_elses_is_warned_of(tmp_path):
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    told = machine.mps(environ, None)
    assert (told.state, "no control daemon runs there" in told.finding) == ("warning", True)
    write(tmp_path / "nvidia-cuda-mps-control.pid", "4711\n")
    told = machine.mps(environ, None, alive=lambda pid: pid == 4711)
    assert (told.state, "not ours" in told.finding, told.fix is None) == ("warning", True, False)
    assert "no control daemon runs there" in machine.mps(environ, None, alive=lambda pid: False).finding


def test_jupyters_configuration_files_say_where_mps_servers_are(tmp_path, monkeypatch):
    write(tmp_path / "jupyter_server_config.py", 'c.GPUShare.mps_folder = "/run/here"')
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    assert settings().mps_folder == "/run/here"
    write(tmp_path / "jupyter_server_config.py", "c.GPUShare.mps_folder = ")
    assert settings().mps_folder == ""
    assert mps_folder("", tmp_path).name == "mps"
    assert mps_folder("", None) == (Path("/run/gpushare/mps") if os.getuid() == 0 else None)


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        ((), "missing", "No GPU"),
        ((A100,), "ok", "0 on the GPUs"),
        ((replace(A100, processes=(Process(pid=7, memory=5),)),), "ok", "1 on the GPUs, all seen here."),
        ((replace(A100, processes=(Process(pid=7),)),), "ok", "does not say how much memory"),
        ((replace(A100, processes=(Process(pid=7), Process(pid=645400))),), "warning", "1 of 2 processes"),
        ((replace(A100, processes_known=False),), "warning", "does not list"),
    ],
)
def test_whether_the_processes_on_the_gpus_can_be_told_apart(found, state, words):
    """B1, A10, A12: in a container, on Windows hosts, with an old driver."""
    told = machine.processes(found, {7}.__contains__)
    assert told.state == state
    assert words in told.finding
    assert (told.fix is not None) == (state == "warning")


def test_devices_that_never_tell_their_use_are_counted_and_what_is_done_instead_is_said():
    """A6"""
    busy = replace(A100, utilization=0.5)
    assert machine.utilization(()).state == "missing"
    assert machine.utilization((busy,)).state == "ok"
    told = machine.utilization((busy, A100, replace(A100, state="lost")))
    assert (told.state, told.finding) == ("warning", "Not told by 1 of 3 devices.")
    assert "processor time" in told.fix


def test_what_parked_sessions_may_take_is_said_or_that_it_is_unknown():
    assert "3.0 GiB" in machine.host_memory(3 * 2**30).finding
    assert machine.host_memory(None).state == "warning"


def test_mig_instances_are_counted():
    sliced = Device(uuid="MIG-1", index=0, model="A100 MIG", sharing="mig")
    assert machine.mig((sliced, sliced)).finding.startswith("2 instances")
    assert machine.mig((A100,)).state == "missing"


@pytest.mark.parametrize(
    ("found", "switched_off", "state", "words"),
    [
        (None, None, "missing", "No GPU"),
        (Capability(bindings="13.5.0", cuda=13000, driver="580.65"), None, "ok", "driver 580.65, cuda-bindings 13.5.0"),
        (Capability(bindings="13.5.0", cuda=12020, driver="535.1"), None, "missing", "needs NVIDIA driver 570"),
        (Capability(error="cuda-bindings is not installed. Run: pip"), None, "missing", "cuda-bindings is not"),
        (Capability(bindings="13.5.0", cuda=13000, driver="580.65"), "Switched off.", "warning", "Switched off."),
    ],
)
def test_whether_real_gpus_can_be_parked_is_said_with_the_cause(found, switched_off, state, words):
    finding = machine.checkpoint(found, switched_off)
    assert finding.state == state
    assert words in finding.finding
    assert (finding.fix is None) == (state == "ok" or found is None)


# --- what we keep ---


def test_a_lock_folder_that_cannot_be_used_is_broken():
    def find() -> Path:
        raise PermissionError(13, "Permission denied", "/run/lock/gpushare")

    found = keeping.lock_folder(find)
    assert (found.state, found.finding) == ("broken", "/run/lock/gpushare: Permission denied.")
    assert "GPUSHARE_LOCK_DIR" in found.fix


def test_a_ledger_away_from_its_usual_place_says_why(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    assert keeping.ledger(url, None, free=lambda folder: 10**12).state == "ok"
    found = keeping.ledger(url, "The ledger is at /var/tmp, because /home/a is on a network file system.")
    assert found.state == "warning"
    assert "network" in found.cause


def test_a_ledger_on_a_full_disk_is_warned_of(tmp_path):
    found = keeping.ledger(f"sqlite:///{tmp_path}/ledger.sqlite", None, free=lambda folder: 3 * 2**20)
    assert (found.state, "3 MiB left" in found.finding) == ("warning", True)


def test_the_hub_is_only_said_to_be_used_where_it_is():
    assert keeping.hub({}).finding == "Not in use."
    assert "alice" in keeping.hub({"JUPYTERHUB_API_URL": "http://hub", "JUPYTERHUB_USER": "alice"}).finding


# --- Jupyter ---


def entry(target: str) -> EntryPoint:
    return EntryPoint("gpushare", target, "jupyter_client.kernel_provisioners")


def test_a_provisioner_that_cannot_be_loaded_is_named_with_the_error():
    assert jupyter.provisioner({}, [entry("jupyter_client.provisioning:LocalProvisioner")]).state == "ok"
    assert jupyter.provisioner({}, []).state == "broken"
    found = jupyter.provisioner({}, [entry("jupyter_gpushare.nowhere:Provisioner")])
    assert found.state == "broken"
    assert "nowhere" in found.cause


def test_another_default_provisioner_in_the_environment_is_warned_of():
    environ = {"JUPYTER_DEFAULT_PROVISIONER_NAME": "local-provisioner"}
    assert jupyter.provisioner(environ, [entry("jupyter_client.provisioning:LocalProvisioner")]).state == "warning"


def test_kernelspecs_with_a_provisioner_of_their_own_are_listed():
    own = {"metadata": {"kernel_provisioner": {"provisioner_name": "slurm"}}}
    found = jupyter.own_provisioners({"python3": {}, "remote": own})
    assert (found.state, found.finding) == ("warning", "Not managed: remote (slurm).")


def test_python_kernels_without_the_package_are_listed_with_the_command_to_install_it():
    specs = {
        "here": {"argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]},
        "torch": {"argv": ["/envs/torch/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]},
        "ir": {"argv": ["R", "--slave"]},
    }
    found = jupyter.interpreters(specs, lambda path: path != "/envs/torch/bin/python")
    assert (found.state, found.finding) == ("warning", "Without %gpu: torch.")
    assert found.fix == "/envs/torch/bin/python -m pip install jupyter-gpushare"


def test_a_server_extension_that_is_off_is_broken():
    assert jupyter.extension({"jupyter_gpushare": True}).state == "ok"
    for enabled in ({}, {"jupyter_gpushare": False}):
        assert jupyter.extension(enabled).fix == "jupyter server extension enable jupyter_gpushare"


def test_the_panel_is_there_when_its_folder_is(tmp_path):
    assert jupyter.panel([tmp_path]).state == "warning"
    write(tmp_path / "package.json", "{}")
    assert jupyter.panel([tmp_path]).state == "ok"


# --- all of it ---


def test_the_text_has_a_line_a_check_and_says_what_to_do():
    text = as_text(
        [
            Finding(check="mig", state="missing", finding="Off."),
            Finding(check="nvml", state="broken", finding="It fails.", cause="Old driver.", fix="Reboot."),
        ]
    )
    assert text.splitlines() == [
        "missing  mig   Off.",
        "broken   nvml  It fails.",
        "               cause: Old driver.",
        "               fix: Reboot.",
    ]


def test_a_run_on_this_machine_covers_every_check_and_changes_no_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUSHARE_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = dict(os.environ)
    checks = {finding.check for finding in doctor.run()}
    assert {"driver", "nvml", "pynvml", "device nodes", "mps", "mig", "checkpoint", "ledger", "bus", "hub"} <= checks
    assert {"provisioner", "kernelspecs", "kernels", "server extension", "panel", "device locks", "mask"} <= checks
    assert {"processes", "utilization", "host memory", "gate"} <= checks
    assert dict(os.environ) == before


def test_whether_time_is_divided_by_shares_is_said_with_what_a_lock_costs(tmp_path):
    costs = {f"{call}_{which}_s": 0.001 for call in ("lock", "unlock") for which in ("median", "longest")}
    report = {"model": "A100", "driver": "580.65", "steps": {"gate": {"state": "measured", "result": costs}}}
    file = tmp_path / "check.json"
    write(file, json.dumps(report))
    assert machine.gate(str(file), (), "580.65").state == "missing"
    told = machine.gate("", (A100,), "580.65")
    assert (told.state, "gate_check" in told.fix) == ("missing", True)
    told = machine.gate(str(tmp_path / "none"), (A100,), "580.65")
    assert (told.state, "cannot be read" in told.finding) == ("warning", True)
    told = machine.gate(str(file), (A100,), "580.65")
    assert (told.state, "2.0 ms" in told.finding) == ("ok", True)
    told = machine.gate(str(file), (A100,), "590.1")
    assert (told.state, "here is A100, driver 590.1" in told.cause, told.fix is None) == ("warning", True, False)


def test_a_bus_between_machines_is_tried_and_a_password_never_shown():
    assert "own process" in keeping.bus("").finding
    url = "nats://agent:secret@10.0.0.1,tls://[fd00::2]:4223"
    told = keeping.bus(url, lambda host, port: None if (host, port) == ("fd00::2", 4223) else "Connection refused")
    assert (told.state, told.finding) == ("ok", "NATS answers at fd00::2:4223.")
    told = keeping.bus(url, lambda host, port: "Connection refused")
    assert (told.state, told.cause) == ("broken", "10.0.0.1:4222: Connection refused.")
    assert "secret" not in str(told)
