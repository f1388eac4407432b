"""One moment that never changes: what pictures of the panel, of `%gpu` and of the hub page are taken of."""

from __future__ import annotations

from typing import Any

from tests.browser.made_up import GIB, Status, everyday

AT = 1_790_003_600  # s since 1970: 2026-09-21, 14:33 UTC


def moment(status: Status) -> Status:
    """The sessions of `everyday` on devices that read the same in every run."""
    for server in status["servers"]:
        server["age_s"] = 0.4
    first, second = status["servers"][0]["devices"]
    first |= {"utilization": 0.12, "memory_used": 21 * GIB, "temperature_c": 47.0, "power_w": 96.0, "age_s": 0.4}
    second |= {"utilization": 0.86, "memory_used": 54 * GIB, "temperature_c": 71.0, "power_w": 318.0, "age_s": 0.4}
    first |= {"pcie_rx_gb_s": 0.31, "pcie_tx_gb_s": 0.04}
    second |= {"pcie_rx_gb_s": 2.1, "pcie_tx_gb_s": 0.64, "nvlink_rx_gb_s": 41.2, "nvlink_tx_gb_s": 38.7}
    seen = everyday(status) | {"warn_before_s": 30.0}
    front, waiting = seen["sessions"][0], seen["sessions"][4]
    front["next"] = {"code": "grow", "text": "Grows when others on this GPU pause.", "in_s": None}
    waiting["next"] = {"code": "start", "text": "Starts by itself; your cell waits.", "in_s": None}
    for session in seen["sessions"]:
        session |= {"charged_gpu_s": 5400.0, "kind": "data", "horizon": "bursty", "message": ""}
    return seen | {"summary": {"devices": 2, "free": 0.75, "waiting": 2}}


def warned(status: Status) -> Status:
    """The same, with the notebook in front idle and about to be parked."""
    seen = moment(status)
    seen["sessions"][0] |= {"state": "idle", "idle_s": 190.0, "reclaim_in_s": 24.0}
    return seen


def _term(name: str, value: float, weight: float, text: str) -> dict[str, Any]:
    return {"name": name, "value": value, "weight": weight, "text": text}


TERMS = [
    _term("compute", 0.86, 0.0, "312 of 312 TFLOP/s"),
    _term("data", 1.0, 1.0, "2,039 of 2,039 GB/s"),
    _term("fragmentation", -0.14, 0.5, "whole device free"),
    _term("locality", 0.0, 0.25, "nothing to move"),
    _term("thermal", -0.2, 0.5, "71 of 89 °C"),
    _term("energy", -0.46, 0.2, "318 of 400 W"),
    _term("stability", -0.01, 0.1, "load swings by 4%"),
]


def why(status: Status) -> dict[str, Any]:
    """Why the notebook in front is on its device, and what was decided before."""
    first, second = status["servers"][0]["devices"]
    past = [
        ("resume", "room", "Its memory is back.", 300.0),
        ("park", "reclaim", "Someone waited; it was idle for 5 min.", 1500.0),
        ("place", "room", "Its share is free there.", 3000.0),
    ]
    decided = [
        {
            "act": act,
            "session": status["sessions"][0]["id"],
            "why": reason,
            "devices": [second["uuid"]],
            "lease": True,
            "borrowed": False,
            "share": 0.25,
            "fitness": 0.74,
            "terms": TERMS,
            "alternatives": [],
            "text": text,
            "ago_s": ago_s,
        }
        for act, reason, text, ago_s in past
    ]
    worse = "less free memory bandwidth: 864 of 864 GB/s"
    other = {"device": first["uuid"], "fitness": 0.15, "decisive": "data", "text": worse}
    return {"terms": TERMS, "alternatives": [other], "decided": decided}


def _point(step: int, share: float | None) -> dict[str, Any]:
    used = None if share is None else 0.85 * share
    return {"at": AT - 3600 + 300 * step, "share": share, "utilization": used, "gpu_s": 300 * (share or 0.0)}


SHARES = [0.1, 0.25, 0.5, 0.5, 1.0, 1.0, None, None, 0.8, 0.6, 0.3, 0.1]
HISTORY = {  # an hour of use with a pause in it
    "since": AT - 3600,
    "until": AT,
    "step_s": 300,
    "series": [_point(step, share) for step, share in enumerate(SHARES)],
    "by_user": {"alice": 93_600.0, "bob": 41_400.0, "chen": 154_800.0, "dora": 7_200.0},
    "by_group": {"vision": 129_600.0, "language": 167_400.0},
    "by_day": {"2026-09-19": 86_400.0, "2026-09-20": 68_400.0, "2026-09-21": 142_200.0},
    "total_gpu_s": 297_000.0,
    "fair": {"alice": 0.25, "bob": 0.25, "chen": 0.25, "dora": 0.25},
    "figures": [
        {
            "ago_s": 60.0 * ago,
            "waiting": max(0, 6 - ago // 30),
            "computing": 34 + ago % 40 / 10,
            "idle": 9 + ago % 70 / 30,
            "out": 2 if ago < 45 else 0,
        }
        for ago in range(359, 0, -1)
    ],
}
MINE = {**HISTORY, "by_user": {"alice": 93_600.0}, "by_group": {}, "fair": {"alice": 0.25}}

# The last hour of sixty GPUs: half of it computed in bursts, without NVLink.
MINUTES = range(60, -1, -1)
BURSTS = [0.9 if minute % 20 < 9 else 0.05 for minute in MINUTES]
READINGS: dict[str, Any] = {
    "step_s": 60,
    "devices": 60,
    "ago_s": [60 * minute for minute in MINUTES],
    "utilization": BURSTS,
    "memory_used": [(30 + 40 * busy) * 60 * GIB for busy in BURSTS],
    "memory_utilization": [0.4 * busy for busy in BURSTS],
    "temperature_c": [34 + 40 * busy for busy in BURSTS],
    "power_w": [60 * (60 + 280 * busy) for busy in BURSTS],
    "pcie_rx_gb_s": [14 * busy for busy in BURSTS],
    "pcie_tx_gb_s": [3 * busy for busy in BURSTS],
    "nvlink_rx_gb_s": [None for _ in MINUTES],
    "nvlink_tx_gb_s": [None for _ in MINUTES],
}
