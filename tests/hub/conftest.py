"""One hub for all tests of a module, and users whose spawners only say what they would do."""

from __future__ import annotations

import pytest

from tests.hub import bed as beds


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    with beds.hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def users(monkeypatch):
    """Users of a hub that has no Kubernetes: nothing is asked of it but the manifest."""
    import kubespawner.spawner

    from tests.hub.spawning import Users

    for name in ("load_config", "shared_client"):
        monkeypatch.setattr(kubespawner.spawner, name, lambda *_, **__: None)
    made = Users()
    yield made
    made.close()
