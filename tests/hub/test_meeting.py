"""Services of several hubs on one machine, run by one user, do not meet."""

from __future__ import annotations

import pytest

pytest.importorskip("jupyterhub")
from jupyter_gpushare.hub.run import meeting


def test_each_hub_has_a_place_of_its_own_and_the_same_one_after_a_restart(monkeypatch, tmp_path):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    first, second = ({"JUPYTERHUB_API_URL": f"http://127.0.0.1:{port}/hub/api"} for port in (8081, 9081))
    assert meeting(first) == meeting(dict(first))
    assert meeting(first) != meeting(second)
    assert meeting(first).stat().st_mode & 0o777 == 0o700
