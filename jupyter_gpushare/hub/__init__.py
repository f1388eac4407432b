"""The JupyterHub side: the GPU service of a hub, and its one-line configuration.

In `jupyterhub_config.py`::

    from jupyter_gpushare.hub import configure
    configure(c)
"""

from .configure import ADMIN, READ, URL, configure, pre_spawn_hook, service, token_scopes
from .culler import cull_arbiter

__all__ = ["ADMIN", "READ", "URL", "configure", "cull_arbiter", "pre_spawn_hook", "service", "token_scopes"]
