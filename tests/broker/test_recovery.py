"""The broker with the real ledger: what was lent is known again after a restart."""

from __future__ import annotations

from jupyter_gpushare.broker.ledger import Ledger
from jupyter_gpushare.model import Caller


async def test_leases_and_bindings_outlive_the_broker_in_the_real_ledger(world, tmp_path):
    w = await world(devices=2)
    await w.broker.stop()
    w.ledger = await Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    w.make()
    await w.start()
    await w.kernel("k1", demand={"gpus": 1})
    await w.kernel("k2", "bob")
    before = {name: session.devices for name, session in w.broker.cluster.sessions.items()}
    await w.broker.stop()
    await w.ledger.close()
    w.ledger = await Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    w.make()
    await w.start()
    try:
        sessions = w.broker.cluster.sessions
        assert {name: session.devices for name, session in sessions.items()} == before
        assert (sessions["k1"].owns, sessions["k2"].leased) == (True, False)
        await w.ends("k1")
        assert await w.ledger.flushed()
        assert [row.session for row in await w.ledger.leases()] == ["k2"]
    finally:
        await w.broker.stop()
        await w.ledger.close()


async def test_the_route_table_describes_itself(world):
    w = await world()
    document = await w.call("GET", "openapi.json", Caller(user="a"))
    assert document["openapi"].startswith("3.1")
    assert "post" in document["paths"]["/sessions/{id}/pin"]
