"""Servers that have the extensions of beside.txt as well as ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PREFIX = Path(sys.prefix) / "beside"


def environment(folder: Path) -> dict[str, str]:
    """What such a server needs in its environment; what it keeps of its user lies in `folder`."""
    packages = os.pathsep.join(map(str, PREFIX.glob("lib*/python*/site-packages")))
    assert packages, "This needs the extensions of tests/browser/beside.txt: make .venv/beside"
    return {
        "PYTHONPATH": packages,
        "JUPYTER_PATH": str(PREFIX / "share" / "jupyter"),
        "JUPYTER_CONFIG_PATH": str(PREFIX / "etc" / "jupyter"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
    }
