"""What this machine's Jupyter server is configured to do, as far as a check depends on it."""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_core.application import JupyterApp

from ..config import GPUShare


class _Server(JupyterApp):
    """Reads the files that a Jupyter server reads; a broken one is logged, and its settings are the defaults."""

    name = "jupyter-server"
    config_file_name = "jupyter_server_config"


def settings() -> GPUShare:
    """The settings in Jupyter's configuration files."""
    server = _Server()
    server.log.disabled = True  # what is wrong in a file is for the server that starts with it to say
    server.load_config_file()
    return GPUShare(parent=server)


def mps_folder(chosen: str, runtime: Path | None) -> Path | None:
    """Where our MPS servers' pipes lie: as chosen, else root's place or the user's (server/agents.py)."""
    if chosen:
        return Path(chosen)
    if os.getuid() == 0:
        return Path("/run/gpushare/mps")
    return None if runtime is None else runtime / "mps"
