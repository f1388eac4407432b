"""What a kernel that starts is for: its notebook, and the demand written in there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import BadDemand
from ..model import Demand, checked
from ..units import parse_bytes, parse_seconds

LARGEST_NOTEBOOK = 32 * 2**20  # bytes; a larger one is mostly output, and reading it must not delay a start
READ_WAIT_S = 2.0


class _Metadata(msgspec.Struct):
    gpushare: dict[str, Any] = {}


class _Notebook(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def demand_from(fields: Mapping[str, Any], base: Demand, where: str) -> Demand:
    """`base` with the fields that were named. Raises BadDemand saying which field of `where` is not usable."""
    given = dict(fields)
    unknown = sorted(given.keys() - set(Demand.__struct_fields__))
    if unknown:
        raise BadDemand(f"{where}: {unknown[0]}: no such field; allowed are {', '.join(Demand.__struct_fields__)}.")
    try:
        if given.get("memory") is not None:
            given["memory"] = parse_bytes(given["memory"])
        if given.get("duration_s") is not None:
            given["duration_s"] = parse_seconds(given["duration_s"], "duration_s")
        return checked(msgspec.convert(msgspec.to_builtins(base) | given, Demand))
    except BadDemand as error:
        raise BadDemand(f"{where}: {error}") from None
    except msgspec.ValidationError as error:
        raise BadDemand(f"{where}: {error}.") from None


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > LARGEST_NOTEBOOK:
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Notebook).metadata.gpushare
    except msgspec.DecodeError:  # another kind of file, or one that is being written
        return {}


async def notebook_demand(path: str | None) -> dict[str, Any]:
    """The fields under ``metadata.gpushare`` of the notebook file; empty where there are none or it cannot be read.

    Read in a thread: the file may lie on a network file system that hangs.
    """
    if path is None or not path.endswith(".ipynb"):
        return {}
    reading = asyncio.get_running_loop().run_in_executor(None, _read, Path(path))
    try:
        return await asyncio.wait_for(reading, READ_WAIT_S)
    except (OSError, asyncio.TimeoutError):
        return {}


def label_and_path(
    env: Mapping[str, str], cwd: str | None, root: str, known: str | None = None
) -> tuple[str, str | None, str | None]:
    """(label, API path, file path) of the notebook a kernel starts for, by what the server's session manager set.

    Kernels started without a session (VS Code, scripts) are labelled by their folder and have no path. `known`: the
    path that a kernel which restarts has by now; its environment keeps the one it was started with.
    """
    if known is not None:
        return os.path.basename(known), known, os.path.join(root, known)
    name = env.get("JPY_SESSION_NAME")
    if not name:
        return f"no notebook ({os.path.basename(os.path.abspath(cwd or root)) or '/'})", None, None
    file = os.path.abspath(os.path.join(cwd or root, name))
    relative = os.path.relpath(file, root)
    return os.path.basename(file), relative if not relative.startswith("..") else file, file


def renamed(path: str, source: str, target: str) -> str | None:
    """What `path` is called once the file or folder `source` is called `target`; None: it lies elsewhere."""
    if path == source:
        return target
    return target + path[len(source) :] if path.startswith(source + "/") else None
