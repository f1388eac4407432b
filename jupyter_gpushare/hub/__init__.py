"""The JupyterHub side: the GPU service of a hub, and its one-line configuration.

In `jupyterhub_config.py`::

    from jupyter_gpushare.hub import configure
    configure(c)
"""

from .configure import ADMIN, READ, configure, service, token_scopes
from .culler import cull_arbiter
from .form import options_form
from .spawn import URL, post_stop_hook, pre_spawn_hook

__all__ = [
    "ADMIN",
    "READ",
    "URL",
    "configure",
    "cull_arbiter",
    "options_form",
    "post_stop_hook",
    "pre_spawn_hook",
    "service",
    "token_scopes",
]
