"""Real IPython shells, real HTTP, a gate file as the server writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell

import jupyter_gpushare
from jupyter_gpushare.kernel.client import Session
from tests.kernel.service import UUID, Service, serve


@pytest.fixture
def service() -> Iterator[Service]:
    with serve() as running:
        yield running


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A closed gate."""
    path = tmp_path / "gate-k1"
    path.write_bytes(b"a\0")
    return path


@pytest.fixture
def plain_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A shell outside any managed kernel; what it displays is kept in `display_pub.outputs`."""
    for name in ("SESSION", "URL", "TOKEN", "GATE"):
        monkeypatch.delenv(f"GPUSHARE_{name}", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(HistoryManager, "enabled", False)
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(display_pub_class=CapturingDisplayPublisher)
    shell.display_pub.outputs = []
    yield shell
    jupyter_gpushare.unload_ipython_extension(shell)
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(plain_shell: Any, service: Service, gate: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The shell of a managed kernel with the extension loaded, its gate closed."""
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUSHARE_GATE", str(gate))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUID)
    monkeypatch.setattr(Session, "changed", False)
    jupyter_gpushare.load_ipython_extension(plain_shell)
    return plain_shell
