"""What Prometheus reads: devices, shares, the queue, decisions. Unknown values are absent, never 0 (rule 1).

Labels name servers, devices and session ids, neither users nor notebooks: others may read a server's metrics (rule 13).
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_args
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..model import AnyDecision, Device, Finding, Rung

ACTS: tuple[str, ...] = tuple(kind.__struct_config__.tag for kind in get_args(AnyDecision))
RUNGS: tuple[str, ...] = get_args(Rung)  # the acts that take something back
DECISION_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
DEVICE_GAUGES = {  # name -> help, field of model.Device
    "gpushare_device_utilization": ("Fraction of time the device computed", "utilization"),
    "gpushare_device_memory_used_bytes": ("Memory in use on the device", "memory_used"),
    "gpushare_device_memory_total_bytes": ("Memory of the device", "memory_total"),
    "gpushare_device_temperature_celsius": ("Temperature of the device", "temperature_c"),
    "gpushare_device_power_watts": ("Power the device draws", "power_w"),
}


@dataclass(frozen=True, slots=True)
class Share:
    """What a session is entitled to of a device now, 0..1."""

    session: str
    uuid: str
    share: float


class Metrics(Collector):
    """One broker's metrics. A later one takes an earlier one's place in the same registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._devices: tuple[tuple[str, Device], ...] = ()
        self._shares: tuple[Share, ...] = ()
        self._queue_length: int | None = None
        self._degraded: Counted[str] = Counted()
        own = self._own = CollectorRegistry()
        self._seconds = Histogram(
            "gpushare_decision_seconds", "Time of one decision over the whole cluster", buckets=DECISION_S, registry=own
        )
        self._decisions = Counter("gpushare_decisions", "Decisions carried out", ["act"], registry=own)
        self._reclaims = Counter("gpushare_reclaims", "Steps of the reclaim ladder taken", ["rung"], registry=own)
        for act in ACTS:
            self._decisions.labels(act)
        for rung in RUNGS:
            self._reclaims.labels(rung)
        self._registry = registry
        if (earlier := _shown.get(registry)) is not None:
            earlier.close()
        registry.register(self)
        _shown[registry] = self

    def show(
        self,
        devices: Iterable[tuple[str, Device]],
        shares: Iterable[Share],
        queue_length: int,
        degraded: Iterable[Finding],
    ) -> None:
        """The cluster as it is now; devices with the name of their server."""
        self._devices, self._shares, self._queue_length = tuple(devices), tuple(shares), queue_length
        self._degraded = Counted(finding.code for finding in degraded)

    def decided(self, decisions: Iterable[AnyDecision], seconds: float) -> None:
        """What one run of the core decided, and how long it took."""
        self._seconds.observe(seconds)
        for decision in decisions:
            act = str(decision.__struct_config__.tag)
            self._decisions.labels(act).inc()
            if act in RUNGS:
                self._reclaims.labels(act).inc()

    def collect(self) -> Iterator[Metric]:
        """Called at every scrape."""
        for name, (text, field) in DEVICE_GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["server", "uuid"])
            for server, device in self._devices:
                value = getattr(device, field)
                if value is not None:
                    gauge.add_metric([server, device.uuid], value)
            yield gauge
        shares = GaugeMetricFamily("gpushare_session_share", "Share of a device now", labels=["session", "uuid"])
        for share in self._shares:
            shares.add_metric([share.session, share.uuid], share.share)
        yield shares
        yield GaugeMetricFamily("gpushare_queue_length", "Sessions that wait for a device", value=self._queue_length)
        degraded = GaugeMetricFamily("gpushare_degraded", "Findings now, by the part that is away", labels=["code"])
        for code, count in sorted(self._degraded.items()):
            degraded.add_metric([code], count)
        yield degraded
        yield from self._own.collect()

    def close(self) -> None:
        """Takes the metrics out of the registry. Safe to call twice."""
        if _shown.get(self._registry) is self:
            del _shown[self._registry]
            self._registry.unregister(self)


_shown: WeakKeyDictionary[CollectorRegistry, Metrics] = WeakKeyDictionary()
