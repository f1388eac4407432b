"""One hub for all tests of a module: it takes seconds to start."""

from __future__ import annotations

import pytest

from tests.hub import bed as beds


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    with beds.hub(tmp_path_factory.mktemp("hub")) as running:
        yield running
