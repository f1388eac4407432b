"""The systemd units that are shipped: systemd takes them, and they never end a kernel."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare import cli

UNITS = sorted((Path(cli.__file__).parent / "units").glob("*.service"))
each = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


def test_there_is_one_for_the_agent_and_one_for_the_broker():
    assert [unit.name for unit in UNITS] == ["gpushare-agent.service", "gpushare-broker.service"]


@each
def test_systemd_finds_nothing_to_complain_of(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    here = tmp_path / unit.name
    here.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", unit.read_text()))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(here)], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


@each
def test_only_the_program_itself_is_ever_ended_and_its_state_outlives_it(unit):
    parser = configparser.ConfigParser(strict=False)
    parser.optionxform = str
    parser.read_string(unit.read_text())
    service = parser["Service"]
    assert (service["KillMode"], service["RuntimeDirectoryPreserve"]) == ("process", "yes")
    assert service["StateDirectory"].startswith("gpushare")
    assert "SendSIGKILL" not in service


@each
def test_its_command_is_one_of_ours(unit):
    _, verb, *rest = re.search(r"(?m)^ExecStart=(.+)$", unit.read_text())[1].split()
    arguments = cli._parser().parse_args([verb, *rest])
    assert (arguments.verb, arguments.config) == (verb, f"/etc/gpushare/{verb}.py")
