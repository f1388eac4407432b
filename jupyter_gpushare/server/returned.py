"""Kernels on other machines that outlived their server: what is written of each, and how the next server has them."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from jupyter_core.paths import jupyter_runtime_dir

from ..model import Binding, SessionSpec
from ..remote.lines import Unreachable
from ..remote.process import Gone, Started, found

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

    from .elsewhere import Elsewhere

log = logging.getLogger(__name__)
AGAIN_S = 5.0  # between two tries to reach a machine with kernels of an earlier server


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """All that another server of the same user needs to take a kernel up."""

    kernel_name: str
    server: str
    started: Started
    connection: dict[str, str | int]
    spec: SessionSpec
    binding: Binding
    root: str  # the folder of its server's notebooks
    token: str | None = None  # its session's capability, which it has in its environment

    def connection_info(self) -> dict[str, Any]:
        """As jupyter_client has it."""
        return {**self.connection, "key": str(self.connection["key"]).encode()}


@dataclass(slots=True)
class Notes:
    """One file for each kernel elsewhere, in this user's home and theirs alone, locked while its server lives."""

    _files: dict[str, int] = field(default_factory=dict)

    def write(self, saved: Saved) -> None:
        """A kernel of which nothing can be written is ended by its keeper, when its server comes to an end."""
        kernel = saved.spec.id
        self.forget(kernel)
        try:
            file = os.open(_path(kernel), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._files[kernel] = file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, msgspec.json.encode(saved))
        except OSError as error:
            log.warning("Kernel %s would not be found again after a crash of this server: %s", kernel, error)

    def forget(self, kernel: str) -> None:
        file = self._files.pop(kernel, None)
        if file is not None:
            _path(kernel).unlink(missing_ok=True)
            os.close(file)

    def left_behind(self, root: str) -> Iterator[Saved]:
        """Those of a server like this one (`root`: its folder) that has gone; this server's from now on.

        What cannot be read is removed.
        """
        try:
            paths = sorted(_folder().glob("*.json"))
        except OSError as error:
            log.warning("Kernels of earlier servers are not looked for: %s", error)
            return
        for path in paths:
            try:
                file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue  # its server is just removing it
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                saved = msgspec.json.decode(os.read(file, os.fstat(file).st_size), type=Saved)
            except OSError:  # its server lives
                os.close(file)
            except msgspec.DecodeError:
                path.unlink(missing_ok=True)
                os.close(file)
            else:
                if (saved.spec.singleuser, saved.root) != (os.environ.get("JUPYTERHUB_SERVER_NAME"), root):
                    os.close(file)
                    continue
                self._files[saved.spec.id] = file
                yield saved

    def close(self) -> None:
        """What is written stays: its kernels run on for a while."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()


def _folder() -> Path:
    folder = Path(jupyter_runtime_dir()) / "gpushare-elsewhere"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _path(kernel: str) -> Path:
    return _folder() / f"{kernel}.json"


async def take_up(serverapp: ServerApp, elsewhere: Elsewhere) -> None:
    """What an earlier server of this user left elsewhere is this server's, and its notebooks find their kernels.

    A machine that cannot be reached is tried again for as long as a keeper waits.
    """
    left = list(elsewhere.notes.left_behind(serverapp.root_dir))
    until = time.monotonic() + elsewhere.keep_s
    while left:
        left = [saved for saved in left if not await _taken_up(serverapp, elsewhere, saved)]
        if left and time.monotonic() > until:
            for saved in left:
                elsewhere.notes.forget(saved.spec.id)
            return
        await asyncio.sleep(AGAIN_S if left else 0)


async def _taken_up(serverapp: ServerApp, elsewhere: Elsewhere, saved: Saved) -> bool:
    """Whether nothing is left to be tried for it."""
    kernel = saved.spec.id
    try:
        launcher = await elsewhere.launcher(saved.server)
        process = await found(launcher, saved.started.folder, elsewhere.keep_s, elsewhere.log)
    except Unreachable as error:
        over = isinstance(error, Gone)
        yet = "" if over else " yet"
        elsewhere.log.warning("Kernel %s of an earlier server is not taken up%s: %s", kernel, yet, error)
        if over:
            elsewhere.notes.forget(kernel)
        return over
    elsewhere.returned[kernel] = saved, process
    await elsewhere.take(process)
    try:
        await _as_ever(serverapp, saved)
    except Exception:  # whatever jupyter_server says to it: one kernel less must not cost the others
        elsewhere.log.exception("Kernel %s of an earlier server could not be taken up", kernel)
        process.kill()
        elsewhere.let_go(process)
        elsewhere.notes.forget(kernel)
    finally:
        elsewhere.returned.pop(kernel, None)
    return True


async def _as_ever(serverapp: ServerApp, saved: Saved) -> None:
    """Its kernel and its notebook's session, as `POST api/sessions` would make them."""
    kernels, sessions, spec = serverapp.kernel_manager, serverapp.session_manager, saved.spec
    path, env = spec.path, dict(os.environ)
    if path:
        env["JPY_SESSION_NAME"] = os.path.join(serverapp.root_dir, path)
    await kernels.start_kernel(kernel_id=spec.id, kernel_name=saved.kernel_name, path=path, env=env)
    if path and not await sessions.session_exists(path=path):  # it was opened anew meanwhile
        name, kind = os.path.basename(path), "notebook" if path.endswith(".ipynb") else "console"
        await sessions.create_session(path=path, name=name, type=kind, kernel_name=saved.kernel_name, kernel_id=spec.id)
