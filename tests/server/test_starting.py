"""Before its broker is there a server says so at once; whoever looks asks again."""

from __future__ import annotations

import json
import logging
import time

import pytest
from tornado.httpclient import HTTPClientError

pytestmark = pytest.mark.alone

API = ("gpushare", "api", "v1")


@pytest.mark.parametrize("path", ["status", "events"])
async def test_who_looks_before_the_broker_is_there_is_told_at_once_when_to_come_back(
    jp_fetch, extension, path, caplog
):
    extension.rooms.link._use(None)
    asked = time.monotonic()

    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(*API, path)

    assert time.monotonic() - asked < 1
    assert caught.value.code == 503
    assert json.loads(caught.value.response.body)["reason"] == "starting"
    assert caught.value.response.headers["Retry-After"] == "1"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
