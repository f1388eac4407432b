"""Status answers of places that no test machine is: a hub of many GPUs, put over a real server's own answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, Route

GIB = 2**30
Status = dict[str, Any]


def answering(page: Page, dress: Callable[[Status], Status]) -> None:
    """Every look at the status sees it dressed; no stream of events comes through, which would tell the truth."""

    def dressed(route: Route) -> None:
        answer = route.fetch()
        if answer.status == 200 and "sessions" in (seen := answer.json()):
            route.fulfill(response=answer, json=dress(seen))
        else:
            route.fulfill(response=answer)

    page.route("**/gpushare/api/v1/events*", lambda route: route.abort())
    page.route("**/gpushare/api/v1/status*", dressed)


HELD = {  # server -> model, how much of each device is held
    "bravo": ("NVIDIA H100 80GB HBM3", (1, 1, 0.9, 1, 1, 1, 0.8, 1)),
    "charlie": ("NVIDIA H100 80GB HBM3", (1, 1, 0.6, 1, 1, 1, 1, 0.5)),
    "gpu-a100-rack2-node07": ("NVIDIA A100-SXM4-80GB", (0.4, 1, 0.2, 0, 1, 0.7, 0, 0)),
    "delta": ("NVIDIA A100-SXM4-80GB", (1, 1, 1, 0.6, 1, 0.9, 1, 0.5)),
    "echo": ("NVIDIA A100-SXM4-80GB", (0.2, 0.3, 1, 1, 1, 1, 0.5, 1)),
    "foxtrot": ("NVIDIA A100-SXM4-80GB", (1, 0.9, 1, 0.4, 1, 1, 0, 1)),
    "golf": ("NVIDIA L40S", (0.9, 0.7, 0.5, 0.4)),
    "hotel": ("NVIDIA RTX A6000", (1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)),
}


def hub(status: Status) -> Status:
    """Sixty GPUs of four models on eight servers; one of mine on charlie, one lost, one not managed."""
    device = status["servers"][0]["devices"][0]
    servers = []
    for name, (model, held) in HELD.items():
        devices = []
        for index, share in enumerate(held):
            more: dict[str, Any] = {"other_shares": [share] if share else [], "allocated": share}
            if (name, index) == ("foxtrot", 6):
                more |= {"state": "lost", "reason": "It fell off the bus."}
            if (name, index) == ("gpu-a100-rack2-node07", 7):
                left = {"pid": None, "owner": None, "memory": 24 * GIB, "why": "foreign", "session": None}
                more |= {"others": [left]}
            if (name, index) == ("charlie", 5):
                more |= {"other_shares": []}
            read = {"utilization": round(0.9 * share, 2), "memory_used": int((1 + 70 * share) * GIB)}
            heat = {"temperature_c": int(30 + 45 * share), "memory_total": 80 * GIB, "age_s": 0.4}
            devices.append(
                {**device, "uuid": f"{name}-{index}", "index": index, "model": model, **read, **heat, **more}
            )
        servers.append({"name": name, "state": "up", "age_s": 0.4, "devices": devices})
    status["servers"] = servers
    front = next(session for session in status["sessions"] if session["label"].startswith("features"))
    wish = {"gpus": 2, "constraints": {"model": "A100", "server": None}}
    waiting = {
        "state": "waiting",
        "devices": [],
        "queue_position": 3,
        "eta_s": 240.0,
        "waiting_s": 80.0,
        "idle_s": None,
    }
    part = {"uuid": "charlie-5", "share": 1.0, "memory_used": 60 * GIB, "utilization": 0.9}
    gnn = {"id": "gnn", "label": "gnn_molecule-property-prediction_qm9.ipynb", "state": "active", "devices": [part]}
    status["sessions"] = [
        {**front, **waiting, "demand": {**front["demand"], **wish}, "message": ""},
        {**front, **gnn, "guarantee": 0.5, "idle_s": None, "message": ""},
    ]
    status["queue"] = [None, None, front["id"], None, None, None]
    return status


def everyday(status: Status) -> Status:
    """The server's own answer with a session in each state put into it, and one of somebody else."""
    first, second = status["servers"][0]["devices"]
    front = next(session for session in status["sessions"] if session["label"].startswith("features"))
    part = {"uuid": second["uuid"], "share": 0.5, "memory_used": 50 * GIB, "utilization": 0.86}
    small = {**part, "uuid": first["uuid"], "share": 0.25, "memory_used": 4 * GIB, "utilization": 0.0}

    def like(name: str, state: str, **more: object) -> dict[str, Any]:
        rest = {"idle_s": None, "devices": [], "message": ""}
        return {**front, "id": name, "label": f"{name}.ipynb", "path": f"{name}.ipynb", "state": state, **rest, **more}

    status["sessions"] = [
        {**front, "state": "active", "idle_s": None, "devices": [part]},
        like("train", "idle", idle_s=75.0, devices=[small]),
        like("finetune_llama3-8b_customer-support_v7-final", "idle", idle_s=300.0, reclaim_in_s=24.0, devices=[small]),
        like("Untitled7", "parked", parked_bytes=6 * GIB),
        like("whole", "waiting", queue_position=2, eta_s=200.0, waiting_s=61.0),
        like("explore", "active", user="bob", mine=False, devices=[{**part, "share": 0.25}]),
    ]
    status["queue"] = ["someone", "whole"]
    first["allocated"], second["allocated"] = 0.5, 0.75
    return status


USERS = ("mkowalczyk", "a.oyelaran", "jean-baptiste.lefebvre", "alice", "s.nguyen", "t.abebe", "k.lindqvist-oyarzábal")
LABELS = (
    "hyperparameter-search_trial-0042_do-not-stop.ipynb",
    "nnunet_abdominal-ct_fold-3.ipynb",
    "Untitled3.ipynb",
    "llm-eval_harness_mmlu_5-shot.ipynb",
    "unet.ipynb",
)
LINE: tuple[tuple[str, str, dict[str, Any], float, float | None], ...] = (  # user, notebook, asks for, waits, expected
    (
        "a.oyelaran",
        "protein-folding_openfold_msa-transformer_casp15_T1104",
        {"gpus": 1, "memory": 60 * GIB, "constraints": {"model": "A100", "server": None}},
        252.0,
        45.0,
    ),
    ("mkowalczyk", "rag_embedding-index_arxiv-2.3M-abstracts_faiss-gpu_ivfpq", {"gpus": 1}, 160.0, 61.0),
    ("alice", "diffusion_inpainting_RERUN", {"gpus": 2, "constraints": {"model": "H100", "server": None}}, 80.0, 240.0),
    ("jean-baptiste.lefebvre", "Untitled12", {"gpus": 0.25}, 48.0, 240.0),
    ("s.nguyen", "unet", {"gpus": 1, "exclusive": True, "constraints": {"model": "A100", "server": None}}, 31.0, 540.0),
    ("t.abebe", "all-reduce_nccl_4-way", {"gpus": 4, "constraints": {"model": "H100", "server": None}}, 12.0, None),
)


def busy_hub(status: Status) -> Status:
    """The sixty GPUs as an admin sees them: whose each share is, who rests, and six in line."""
    seen = hub(status)
    like = seen["sessions"][0] | {"queue_position": None, "eta_s": None, "waiting_s": None, "demand": {"gpus": 0.1}}
    sessions: list[dict[str, Any]] = []
    for server in seen["servers"]:
        for device in server["devices"]:
            share = device["allocated"]
            if not share:
                continue
            number = len(sessions)
            user, rests = USERS[number % len(USERS)], number % 5 == 3
            part = {"uuid": device["uuid"], "share": share, "memory_used": 20 * GIB, "utilization": 0.8}
            one = {"id": f"s{number}", "user": user, "mine": False, "label": LABELS[number % len(LABELS)]}
            rest = {"idle_s": 60.0 * number + 30, "pinned_until_s": 5400.0 if number % 15 == 3 else None}
            state = {"state": "idle", **rest} if rests else {"state": "active", "idle_s": None}
            sessions.append({**like, **one, **state, "devices": [part], "guarantee": 0.1, "path": one["label"]})
            device["other_shares"] = []
    for place, (user, label, demand, waiting_s, eta_s) in enumerate(LINE, start=1):
        one = {"id": f"w{place}", "user": user, "mine": False, "label": f"{label}.ipynb", "path": f"{label}.ipynb"}
        wait = {"state": "waiting", "queue_position": place, "waiting_s": waiting_s, "eta_s": eta_s, "devices": []}
        sessions.append({**like, **one, **wait, "demand": demand})
    free = sum(1 - device["allocated"] for server in seen["servers"] for device in server["devices"])
    return seen | {
        "mode": "hub",
        "user": "boss",
        "admin": True,
        "sessions": sessions,
        "queue": [f"w{place}" for place in range(1, len(LINE) + 1)],
        "summary": {"devices": 60, "free": round(free - 2, 2), "waiting": len(LINE)},
    }
