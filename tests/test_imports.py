"""Every room imports only what docs/developers/architecture.md allows it, and kernels load nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "jupyter_gpushare"
NAME = PACKAGE.name
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "labextension" not in path.relative_to(PACKAGE).parts)

WORDS = {"model", "errors", "units"}
OURS = {  # room -> what of ours it may import, rooms or single modules; a room not named here may import everything
    "__init__": {"kernel", "server.extension"},
    "_version": set(),
    "model": {"errors", "units"},
    "errors": set(),
    "units": {"errors"},
    "tasks": set(),
    "core": {"model", "errors"},
    "node": {*WORDS, "tasks", "bus.base"},
    "bus": {"model", "errors", "tasks"},
    "broker": {*WORDS, "tasks", "core", "bus.base"},
    "remote": {"errors", "tasks"},
    "config": {"model", "errors", "units", "core.policy", "learned"},
    "learned": {"errors", "core.policy", "core.objectives"},
    "server": {*WORDS, "tasks", "config", "broker", "bus", "node", "doctor", "remote"},
    "hub": {*WORDS, "tasks", "config", "broker", "bus", "server"},
    "kernel": {"errors", "units"},
    "simulated": {"kernel", "errors", "units"},
}
OTHERS = {  # room -> packages of others; a room not named here may import everything but what FILES_ONLY keeps
    "__init__": set(),
    "_version": set(),
    "model": {"msgspec"},
    "errors": set(),
    "units": set(),
    "tasks": set(),
    "core": {"numpy"},
    "node": {"msgspec", "psutil"},
    "bus": {"msgspec"},
    "broker": {"msgspec", "numpy"},
    "remote": {"msgspec"},
    "config": {"msgspec", "traitlets"},
    "server": {
        "jupyter_client",
        "jupyter_core",
        "jupyter_events",
        "jupyter_server",
        "msgspec",
        "psutil",
        "tornado",
        "traitlets",
        "zmq",
    },
    "hub": {"jupyterhub", "msgspec", "tornado", "traitlets"},
    "kernel": {"IPython", "dill"},  # inside functions, see below
    "simulated": set(),
}
DATABASE = {"broker/database.py", "broker/history.py", "broker/tables.py", "broker/migrations"}
FILES_ONLY = {  # package -> the only files or folders that import it
    "pynvml": {"node/nvml.py", "doctor.py", "doctor"},
    "cuda": {"node/checkpoint_helper.py"},
    "sqlalchemy": DATABASE,
    "alembic": DATABASE,
    "prometheus_client": {"broker/metrics.py"},
    "asyncssh": {"remote/ssh.py"},
    "cloudpickle": {"kernel/pool_torchrun.py"},
    "dask_cuda": {"kernel/pool_dask.py"},
    "distributed": {"kernel/pool_dask.py", "kernel/pool_dask_scheduler.py"},
    "dill": {"kernel/snapshot.py"},
    "jupyterlab_server": {"server/language.py"},
    "nats": {"bus/nats.py", "bus/leader.py"},
}
IMPURE = {"asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "socket", "subprocess"}
IMPURE |= {"sys", "tempfile", "threading", "time", "uuid"}
LIGHT = {"__init__", "errors", "kernel", "simulated", "units"}  # loaded in kernels: only the standard library at import


class Import(NamedTuple):
    name: str  # absolute and dotted
    line: int
    late: bool  # inside a function, or for type checkers only


def imports(path: Path, source: str) -> Iterator[Import]:
    """Everything a file imports, relative names resolved."""
    here = (NAME, *path.relative_to(PACKAGE).with_suffix("").parts)

    def walk(node: ast.AST, late: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else ()
            stem = ".".join((*base, *filter(None, [node.module])))
            yield from (Import(f"{stem}.{alias.name}", node.lineno, late) for alias in node.names)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, late or typing_only or inside)

    return walk(ast.parse(source), late=False)


def within(name: str, allowed: set[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)


def violations(path: Path, source: str) -> list[str]:
    """What a file imports against the rules, one line each."""
    file = path.relative_to(PACKAGE)
    room = file.with_suffix("").parts[0]
    where = {file.as_posix(), *(parent.as_posix() for parent in file.parents)}
    found = []
    for name, line, late in imports(path, source):
        top = name.split(".")[0]
        inner = name.removeprefix(f"{NAME}.")
        if top == NAME:
            allowed = {room, "_version", "__version__", *OURS.get(room, {inner})}
            wrong = not within(inner, allowed)
        elif top in sys.stdlib_module_names:
            wrong = room == "core" and top in IMPURE
        elif top in FILES_ONLY:
            wrong = not where & FILES_ONLY[top]
        else:
            wrong = top not in OTHERS.get(room, {top}) or (room in LIGHT and not late)
        if wrong:
            found.append(f"{file}:{line} imports {name}")
        elif top == NAME and room in LIGHT and not late and inner.split(".")[0] not in LIGHT | {"_version"}:
            found.append(f"{file}:{line} imports {name} when a kernel loads it")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_room_imports_only_what_it_may(path):
    assert violations(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/shares.py", "import time"),
        ("core/shares.py", "from os import path"),
        ("core/shares.py", "def f():\n    import random"),
        ("core/shares.py", "from ..units import GIB"),
        ("core/shares.py", "import msgspec"),
        ("core/shares.py", "from ..broker.state import build"),
        ("errors.py", "from .model import Demand"),
        ("model.py", "from .core import policy"),
        ("model.py", "import numpy"),
        ("node/agent.py", "from ..broker.loop import Loop"),
        ("node/agent.py", "from ..bus.local import LocalBus"),
        ("node/agent.py", "import pynvml"),
        ("node/agent.py", "import tornado.web"),
        ("bus/local.py", "from ..units import GIB"),
        ("broker/loop.py", "from ..node import agent"),
        ("broker/loop.py", "from jupyter_gpushare.server import extension"),
        ("broker/loop.py", "from ..bus.local import LocalBus"),
        ("broker/loop.py", "import sqlalchemy"),
        ("broker/ledger.py", "from sqlalchemy import select"),
        ("broker/view.py", "from prometheus_client import Gauge"),
        ("broker/api.py", "from tornado import web"),
        ("config/policy.py", "from ..core.decide import decide"),
        ("config/share.py", "from ..broker.port import Settings"),
        ("server/handlers.py", "from ..demo import run"),
        ("server/handlers.py", "import numpy"),
        ("kernel/magics.py", "from IPython.core.magic import Magics"),
        ("kernel/magics.py", "def f():\n    import numpy"),
        ("kernel/magics.py", "from ..model import Demand"),
        ("__init__.py", "from .server import extension"),
        ("simulated.py", "import msgspec"),
        ("cli.py", "import pynvml"),
    ],
)
def test_a_forbidden_import_is_found(file, source):
    assert violations(PACKAGE / file, source) != []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/shares.py", "import math\nimport numpy as np\nfrom .state import State\nfrom ..model import Demand"),
        ("node/nvml.py", "import pynvml"),
        ("doctor.py", "def f():\n    import pynvml\n    from .server import extension"),
        ("broker/loop.py", "from ..bus.base import Bus\nfrom ..core.decide import decide\nfrom .. import model"),
        ("broker/migrations/versions/0001_ledger.py", "from alembic import op\nimport sqlalchemy as sa"),
        ("kernel/magics.py", "import json\ndef f():\n    from IPython import get_ipython"),
        ("kernel/__init__.py", "from . import client\nfrom ..errors import NotManaged"),
        ("__init__.py", "from ._version import __version__\ndef f():\n    from .server.extension import X"),
    ],
)
def test_an_allowed_import_is_not(file, source):
    assert violations(PACKAGE / file, source) == []


LOADED = """
import importlib, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
"""


def loaded_by(*modules: str) -> set[str]:
    """The packages outside the standard library that importing these modules loads, in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", LOADED, *modules], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_a_kernel_loads_is_the_standard_library_and_ourselves():
    rooms = [path for path in FILES if path.relative_to(PACKAGE).with_suffix("").parts[0] in LIGHT]
    names = [".".join((NAME, *path.relative_to(PACKAGE).with_suffix("").parts)) for path in rooms]
    assert loaded_by(*(name.removesuffix(".__init__") for name in names)) == {NAME}


def test_where_kernels_run_here_only_nothing_of_other_machines_is_loaded():
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, {NAME}.server.extension, {NAME}.server.provisioner; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert f"{NAME}.server.provisioner" in loaded
    elsewhere = (f"{NAME}.remote", f"{NAME}.server.elsewhere", "asyncssh")
    assert [name for name in loaded if name.startswith(elsewhere)] == []


def test_a_servers_start_does_not_wait_for_the_database_library():
    assert loaded_by(f"{NAME}.broker.ledger") <= {NAME, "msgspec", "typing_extensions"}
