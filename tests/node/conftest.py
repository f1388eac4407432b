"""A stand-in NVML library, and processes that read it through the real binding."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jupyter_gpushare.node.checkpoint_driver import HelperDriver
from tests.standin import cuda, nvml

from .checkpoint_machine import Machine

HERE = Path(__file__).parent


class Probe:
    """A process that answers one line of JSON to each line it is told (nvml_worker.py)."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "nvml_worker.py")],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def ask(self, line: str) -> Any:
        self.tell(line)
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def end(self, wait_s: float) -> int:
        """Says that nothing more is asked, and its exit code."""
        self._process.communicate(timeout=wait_s)
        return self._process.returncode

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Standin:
    """The stand-in library, its scenario, and processes that use both."""

    def __init__(self, standin: ModuleType, library: Path, folder: Path) -> None:
        self.standin, self.library, self.folder = standin, library, folder
        self.scenario, self.calls = folder / "scenario", folder / "calls"
        self.probes: list[Probe] = []

    def say(self, *gpus: dict[str, object], **machine: object) -> None:
        """From now on NVML says this."""
        self.standin.write_scenario(self.scenario, self.standin.scenario(*gpus, **machine))

    def probe(self, library: Path | None = None, **environment: str) -> Probe:
        found = self.standin.environment(library or self.library, self.scenario, self.calls) | environment
        self.probes.append(Probe(found))
        return self.probes[-1]

    def count(self, function: str) -> int:
        """How often it was called since the last time this was asked."""
        lines = self.calls.read_text().split() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return lines.count(function)

    def close(self) -> None:
        for probe in self.probes:
            probe.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room for sockets' names, and which everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="mps", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _load_standin() -> ModuleType:
    path = HERE.parent / "standin" / "nvml.py"
    spec = importlib.util.spec_from_file_location("standin_nvml", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def standin() -> ModuleType:
    """tests/standin/nvml.py."""
    return _load_standin()


@pytest.fixture(scope="session")
def build_standin(standin: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds the library without some symbols; each kind once per session."""
    built: dict[tuple[str, ...], Path] = {}

    def build(missing: Sequence[str] = ()) -> Path:
        key = tuple(missing)
        if key not in built:
            built[key] = standin.build(tmp_path_factory.mktemp("nvml"), key)
        return built[key]

    return build


@pytest.fixture(scope="module")
def nvml_standin(
    standin: ModuleType, build_standin: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standin]:
    """The library with all symbols. Its processes end with the module."""
    found = Standin(standin, build_standin(), tmp_path_factory.mktemp("scenario"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, HelperDriver]]:
    """Gives drivers on one scenario, whose helper stays warm from test to test. A fresh one for whoever needs it."""
    folder = tmp_path_factory.mktemp("checkpoint")
    library = cuda.build(nvml.build(folder / "libraries"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in nvml.environment(library, folder / "scenario").items():
            patch.setenv(name, value)
        patch.setenv("CUDA_CALLS", str(folder / "calls"))
        driver = HelperDriver()
        yield folder, driver
        driver.close()


@pytest.fixture
def machine(tmp_path: Path, drivers: tuple[Path, HelperDriver]) -> Iterator[Machine]:
    """Two A100 whose processes can be parked."""
    made = Machine(*drivers, tmp_path / "journal.json")
    yield made
    made.close()
