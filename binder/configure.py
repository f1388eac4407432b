"""Writes the Jupyter configuration of the Binder demo into a folder: simulated GPUs, quick enough to watch."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

from jupyter_gpushare.demo.servers import POLICY

demo = files("jupyter_gpushare") / "demo"
configuration = {
    "ServerApp": {"default_url": "/lab/tree/jupyter_gpushare/demo/notebooks/guide.ipynb"},
    "GPUShare": {
        "devices": "simulated",
        "simulated_inventory": str(demo / "inventory.json"),
        "simulated_user": "you",
    },
    "Policy": dict(POLICY),
}
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "jupyter_server_config.json").write_text(json.dumps(configuration, indent=2))
