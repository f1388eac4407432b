"""Prometheus sees what is known, no more."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpushare.broker.metrics import ACTS, Metrics, Share
from jupyter_gpushare.model import Device, Expand, Finding, ParkSession, TrimCaches, Unbind


@pytest.fixture
def registry():
    return CollectorRegistry(auto_describe=True)


def scraped(registry) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and label values, as Prometheus reads them."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_known_values_are_shown_and_unknown_ones_are_absent(registry):
    metrics = Metrics(registry)
    known = Device(uuid="GPU-a", index=0, model="A100", utilization=0.0, memory_used=5, temperature_c=41.0)
    unknown = Device(uuid="GPU-b", index=1, model="A100")

    metrics.show([("alpha", known), ("alpha", unknown)], [Share("k1", "GPU-a", 0.5)], 2, [])

    seen = scraped(registry)
    assert seen["gpushare_device_utilization"] == {("alpha", "GPU-a"): 0.0}
    assert seen["gpushare_device_memory_used_bytes"] == {("alpha", "GPU-a"): 5.0}
    assert seen["gpushare_device_temperature_celsius"] == {("alpha", "GPU-a"): 41.0}
    assert "gpushare_device_power_watts" not in seen
    assert seen["gpushare_session_share"] == {("k1", "GPU-a"): 0.5}
    assert seen["gpushare_queue_length"] == {(): 2.0}


def test_before_the_first_look_the_queue_is_unknown_and_counters_are_zero(registry):
    Metrics(registry)

    seen = scraped(registry)
    assert "gpushare_queue_length" not in seen
    assert "gpushare_degraded" not in seen
    assert seen["gpushare_decisions_total"] == {(act,): 0.0 for act in ACTS}


def test_decisions_and_steps_of_the_ladder_are_counted(registry):
    metrics = Metrics(registry)

    metrics.decided(
        [
            Expand(session="k1", why="busy", device="GPU-a", share=0.5, target=1.0),
            TrimCaches(session="k2", why="waiters", device="GPU-a"),
            Unbind(session="k3", why="waiters", devices=("GPU-a",)),
            ParkSession(session="k2", why="waiters", devices=("GPU-a",)),
        ],
        seconds=0.002,
    )
    metrics.decided([], seconds=0.0002)

    seen = scraped(registry)
    assert {act: n for (act,), n in seen["gpushare_decisions_total"].items() if n} == {
        "expand": 1,
        "trim": 1,
        "unbind": 1,
        "park": 1,
    }
    assert seen["gpushare_reclaims_total"] == {("trim",): 1, ("unbind",): 1, ("park",): 1, ("stop",): 0}
    assert seen["gpushare_decision_seconds_count"] == {(): 2.0}
    assert seen["gpushare_decision_seconds_bucket"]["0.001",] == 1.0


def test_what_is_away_is_shown_by_its_part_and_goes_when_it_is_back(registry):
    metrics = Metrics(registry)
    finding = Finding(code="ledger", message="alice's notebook")

    metrics.show([], [], 0, [finding])
    assert scraped(registry)["gpushare_degraded"] == {("ledger",): 1.0}
    assert b"alice" not in generate_latest(registry)

    metrics.show([], [], 0, [])
    assert "gpushare_degraded" not in scraped(registry)


def test_a_second_broker_takes_the_place_of_the_first(registry):
    first = Metrics(registry)
    first.decided([], seconds=0.1)

    second = Metrics(registry)
    assert scraped(registry)["gpushare_decision_seconds_count"] == {(): 0.0}

    first.close()  # late; the second one stays
    assert "gpushare_decisions_total" in scraped(registry)
    second.close()
    second.close()
    assert scraped(registry) == {}


def test_servers_metrics_page_has_them():
    metrics = Metrics()
    try:
        assert b"gpushare_decisions_total" in generate_latest()
    finally:
        metrics.close()
    assert b"gpushare_decisions_total" not in generate_latest()
