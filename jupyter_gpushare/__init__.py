"""Fair, elastic GPU shares for Jupyter notebooks.

Kernels import this module, so nothing is imported at module level: the functions below are the package's entry points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from .kernel.client import Session

__all__ = ["__version__", "load_ipython_extension", "session", "unload_ipython_extension"]


def session() -> Session:
    """This kernel's session, with the verbs of ``%gpu`` as methods.

    Raises
    ------
    NotManaged
        This process is not a kernel that jupyter-gpushare manages.
    """
    from .kernel.client import Session

    return Session.from_environment()


def load_ipython_extension(shell: object) -> None:
    """``%load_ext jupyter_gpushare``; also how managed kernels load it by themselves."""
    from .kernel.hooks import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    from .kernel.hooks import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, object]]:
    from .server.extension import GPUShareExtension

    return [{"module": "jupyter_gpushare", "app": GPUShareExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-gpushare"}]
