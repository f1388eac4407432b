"""The GPU check itself, on stand-ins of the driver, of NVML and of the MPS control program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.gpu.report import TITLES, table
from tests.gpu.steps import STEPS
from tests.standin import cuda, mps, nvml

ROOT = Path(__file__).parents[2]
UNIT = 2**20
MIB = 2**20
ROOM = 96 * MIB


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    return cuda.build(nvml.build(folder), cuda.COMPUTE)


class Machine:
    """A machine with one small GPU, and the check run on it."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.library, self.folder, self.out = library, folder, folder / "out"
        self.scenario = folder / "scenario"

    def say(self, **more: object) -> None:
        small = nvml.gpu(0, memory_total=ROOM, memory_reserved=0, utilization=0)
        nvml.write_scenario(self.scenario, nvml.scenario(small, **more))

    def check(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = nvml.environment(self.library, self.scenario) | environment
        call = [sys.executable, "-m", "tests.gpu", "--out", str(self.out), "--unit", str(UNIT), "--seconds", "1"]
        return subprocess.run(
            [*call, *arguments], cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, timeout=110
        )

    def steps(self, *names: str, **environment: str) -> dict[str, Any]:
        ran = self.check("--only", ",".join(names), **environment)
        assert ran.returncode in (0, 1), ran.stderr
        (file,) = self.out.glob("*.json")
        return json.loads(file.read_text())["steps"]


@pytest.fixture
def machine(library, tmp_path) -> Machine:
    made = Machine(library, tmp_path)
    made.say()
    return made


def result(steps: dict[str, Any], name: str) -> dict[str, Any]:
    assert steps[name]["state"] == "measured", steps[name]
    return steps[name]["result"]


def test_a_machine_without_a_gpu_says_so_in_one_line_and_exits_with_2(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert ran.stdout.startswith("No GPU check here: ")
    assert ran.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_does_not_exist_is_named_with_those_that_do(machine):
    ran = machine.check("--only", "move-1,move-7")
    assert ran.returncode == 2
    assert "'move-7' is no step" in ran.stderr


def test_the_device_its_driver_and_what_can_be_done_are_written_down(machine):
    found = result(machine.steps("device"), "device")
    assert (found["model"], found["driver"], found["cuda"]) == ("NVIDIA A100-SXM4-80GB", "580.65.06", 13000)
    assert (found["checkpoint"], found["compute_capability"]) == ("there", [8, 0])


def test_a_move_has_the_times_of_its_four_calls_and_its_memory_back_bit_by_bit(machine):
    found = result(machine.steps("move-1"), "move-1")
    assert all(found[f"{call}_s"] >= 0 for call in ("lock", "checkpoint", "restore", "unlock"))
    assert found["device_memory_freed"] >= UNIT
    assert (found["listed_while_parked"], found["differing_words"]) == (False, 0)


def test_one_flipped_bit_is_found(machine):
    machine.say(**{"cuda.corrupt": 1})
    assert result(machine.steps("move-1"), "move-1")["differing_words"] == 1


def test_what_does_not_fit_is_skipped_with_the_sizes(machine):
    steps = machine.steps("move-40", "move-1")
    result(steps, "move-1")
    machine.say()
    small = nvml.gpu(0, memory_total=4 * UNIT, memory_reserved=0)
    nvml.write_scenario(machine.scenario, nvml.scenario(small))
    skipped = machine.steps("move-10")["move-10"]
    assert skipped["state"] == "skipped"
    assert "are needed" in skipped["reason"]


def test_a_driver_that_refuses_is_a_result_and_says_at_which_call(machine):
    machine.say(**{"cuda.fault.cuCheckpointProcessCheckpoint": cuda.NOT_PERMITTED})
    found = result(machine.steps("move-1"), "move-1")
    assert (found["refused"], found["code"]) == ("checkpoint", cuda.NOT_PERMITTED)


def test_managed_memory_is_refused_and_whether_the_process_goes_on_is_seen(machine):
    found = result(machine.steps("managed"), "managed")
    assert (found["refused"], found["code"]) == ("checkpoint", cuda.NOT_SUPPORTED)
    assert (found["alive"], found["works_after"], found["state_after"]) == (True, True, cuda.RUNNING)


def test_a_child_stays_on_the_device_when_only_its_parent_is_moved(machine):
    found = result(machine.steps("children"), "children")
    assert found["listed_after_parent"] == ["child"]
    assert found["listed_after_child"] == []
    assert found["differing_words"] == 0


def test_a_restore_without_room_is_tried_in_a_throwaway_process_and_again_with_room(machine):
    found = result(machine.steps("full"), "full")
    assert (found["restore_code"], found["again_code"]) == (cuda.OUT_OF_MEMORY, cuda.OPERATING_SYSTEM)


def test_nothing_is_filled_where_others_are_on_the_device(machine):
    other = nvml.gpu(0, memory_total=ROOM, memory_reserved=0, memory_used=UNIT, processes=[[os.getpid(), UNIT]])
    nvml.write_scenario(machine.scenario, nvml.scenario(other))
    steps = machine.steps("full", "mps")
    assert {step["state"] for step in steps.values()} == {"skipped"}
    assert all("could harm them" in step["reason"] for step in steps.values())


def test_an_interrupt_while_a_call_waits_is_seen_not_to_break_the_wait(machine):
    found = result(machine.steps("interrupt"), "interrupt")
    assert (found["call_waits_while_locked"], found["interrupt_breaks_the_wait"]) == (True, False)
    assert (found["answer"], found["alive"]) == ("interrupted", True)


def test_the_gate_gives_two_busy_processes_about_what_their_weights_say(machine):
    found = result(machine.steps("gate"), "gate")
    for weights in ("1:1", "1:2", "1:4"):
        row = found[f"weights {weights}"]
        assert sum(row["shares"]) == pytest.approx(1.0)
        assert row["turns"] >= 2
    assert found["weights 1:4"]["shares"][0] < 0.45, "the lighter one gets less"
    assert found["tries"] > 0


def test_two_processes_side_by_side_and_one_alone_are_compared(machine):
    found = result(machine.steps("timeslice"), "timeslice")
    assert sum(found["shares"]) == pytest.approx(1.0)
    assert found["alone_rounds_s"] > 0


def test_mps_is_measured_through_the_products_own_server_and_environment(machine, tmp_path):
    program = mps.install(tmp_path / "bin")
    found = result(machine.steps("mps", PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}"), "mps")
    assert set(found) == {"ceilings 100% and 100%", "ceilings 50% and 50%", "ceilings 25% and 75%"}
    assert mps.calls(program)[-1].endswith(" quit")


def test_without_the_control_program_mps_is_skipped_with_that_reason(machine, tmp_path):
    step = machine.steps("mps", PATH=f"{Path(sys.executable).parent}{os.pathsep}/nowhere")["mps"]
    assert (step["state"], "nvidia-cuda-mps-control" in step["reason"]) == ("skipped", True)


def test_a_real_notebook_kernel_is_parked_and_resumed_with_equal_tensors(machine):
    found = result(machine.steps("notebook"), "notebook")
    assert (found["tensors_equal"], found["works_after"]) == (True, True)
    assert (found["cpu_cell_runs_while_parked"], found["listed_while_parked"]) == (True, False)


def test_a_step_that_hangs_is_ended_with_all_it_started_and_the_next_is_begun(machine):
    machine.say(**{"cuda.hang.cuCheckpointProcessCheckpoint": 1})
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    began = time.monotonic()
    ran = machine.check("--only", "move-1,device", "--budget", "25")
    assert time.monotonic() - began < 60
    assert ran.returncode == 1
    (file,) = machine.out.glob("*.json")
    steps = json.loads(file.read_text())["steps"]
    assert steps["move-1"]["state"] == "timeout"
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
    assert steps["device"]["state"] in ("measured", "skipped")


def test_every_step_has_a_title_a_bound_and_together_they_can_be_cut_to_the_budget(machine):
    assert set(STEPS) == set(TITLES)
    assert all(0 < step.least_s <= step.limit_s for step in STEPS.values())
    ran = machine.check("--budget", "0.001", "--only", "device,gate")
    assert ran.returncode == 0
    assert ran.stdout.count("was used up") == 2


def test_the_table_shows_outcomes_figures_and_reasons():
    steps = {
        "move-1": {"state": "measured", "result": {"bytes": 10**9, "lock_s": 0.01234, "listed_while_parked": False}},
        "mps": {"state": "skipped", "reason": "No MPS here.", "took_s": 0.0},
    }
    text = table({"model": "X", "driver": "1", "date": "2026-12-02", "took_s": 3.0, "steps": steps})
    assert "| bytes | 1.00 GB |" in text
    assert "| | | lock_s | 0.0123 |" in text
    assert "| | | listed_while_parked | no |" in text
    assert "skipped: No MPS here." in text
