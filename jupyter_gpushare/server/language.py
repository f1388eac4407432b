"""The language that a person chose in their JupyterLab: ``%gpu`` speaks it too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any

from tornado import web

SETTING = "@jupyterlab/translation-extension:plugin"


def chosen_language(apps: Mapping[str, Collection[Any]]) -> str | None:
    """Such as ``de_DE``, read anew each time; None where none was chosen, or no JupyterLab is among these extensions.

    An admin's overrides count as in JupyterLab. "default" is the server's own locale, which kernels inherit.
    """
    for app in chain.from_iterable(apps.values()):
        if getattr(app, "user_settings_dir", ""):
            locale = _setting(app)
            return locale if isinstance(locale, str) and locale not in ("", "default") else None
    return None


def _setting(app: Any) -> object:
    """The person's own choice, else the admin's, which stands in the setting's schema."""
    from jupyterlab_server.settings_utils import get_settings

    try:
        found, _ = get_settings(
            app.app_settings_dir,
            app.schemas_dir,
            app.user_settings_dir,
            schema_name=SETTING,
            labextensions_path=app.extra_labextensions_path + app.labextensions_path,
        )
    except (web.HTTPError, OSError):  # no such schema, unreadable: no reason for a kernel not to start
        return None
    return found["settings"].get("locale") or found["schema"]["properties"]["locale"].get("default")
