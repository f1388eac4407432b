"""The Binder environment opens the demo: its files, run in a clean virtual environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]


def test_the_binder_environment_builds_and_serves_simulated_gpus(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    binaries = tmp_path / "venv" / "bin"
    environment = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    environment.pop("JUPYTER_CONFIG_DIR", None)
    subprocess.run(["bash", "binder/postBuild"], cwd=ROOT, check=True, capture_output=True, env=environment)

    configuration = json.loads((tmp_path / ".jupyter" / "jupyter_server_config.json").read_text())
    assert configuration["GPUShare"]["devices"] == "simulated"
    opened = ROOT / configuration["ServerApp"]["default_url"].removeprefix("/lab/tree/")
    assert opened.is_file()

    checked = subprocess.run(
        [binaries / "jupyter", "gpushare", "demo", "--check", "--no-browser"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All of it happened." in checked.stdout
