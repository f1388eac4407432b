"""What each state looks like, and that a value that was not read is never shown as 0."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpushare.kernel import render
from tests.kernel.service import CLUSTER, SESSION, UUID, WAITS


def session(**changes: Any) -> dict[str, Any]:
    return {**SESSION, **changes}


def test_waiting_shows_the_line_instead_of_a_bar() -> None:
    demand = {"gpus": 2, "constraints": {"model": "A100", "server": None}}
    waits = session(state="waiting", devices=[], queue_position=3, eta_s=240.0, demand=demand)
    card = render.status(waits, {**CLUSTER, "queue": [None, None, "k1", None, None, None]})
    assert card.text.splitlines()[:2] == [
        "Waiting for 2 GPUs, any A100",
        "line   3rd, 2 ahead of you, 3 behind   about 4 min",
    ]
    assert card.html.count('<span class="after">') == 3
    assert 'aria-label="2 ahead of you, 3 behind"' in card.html


def test_a_long_line_is_a_number_only() -> None:
    waits = session(state="waiting", devices=[], queue_position=3)
    card = render.status(waits, {**CLUSTER, "queue": [None] * 40})
    assert 'class="after"' not in card.html
    assert "3rd, 2 ahead of you, 37 behind" in card.text


def test_what_was_not_read_is_a_dash() -> None:
    unread = [{"uuid": UUID, "share": 0.5, "memory_used": None, "utilization": None}]
    card = render.status(session(devices=unread, charged_gpu_s=None), CLUSTER)
    assert "memory – of 80 GiB   busy –   1 neighbour   charged –" in card.text
    assert "0%" not in card.text.replace("50%", "").replace("10%", "").replace("100%", "")


def test_a_device_that_is_not_in_the_view_is_named_by_its_uuid() -> None:
    card = render.status(session(), {**CLUSTER, "servers": []})
    assert "GPU GPU-aaaa-2" in card.text


def test_a_notice_says_why_and_how_to_keep_it() -> None:
    message = "Someone is waiting. This GPU is idle and will be parked in 0:24. Your variables stay."
    following = {"code": "park", "text": "Run a cell or keep it, and it stays.", "in_s": 24.0}
    card = render.status(session(state="idle", reclaim_in_s=24.0, message=message, next=following), CLUSTER)
    assert card.text.splitlines()[-1] == f"next   {message} Run a cell or keep it, and it stays."
    assert 'data-s="warned"' in card.html


def test_a_parked_session_says_it_once() -> None:
    message = "Parked. 6.1 GiB of GPU memory rest in host memory. Run a cell and they come back."
    following = {"code": "cell", "text": "Run a cell and it comes back.", "in_s": None}
    card = render.status(session(state="parked", devices=[], message=message, next=following), CLUSTER)
    assert card.text == message


def test_two_devices_have_a_bar_each_and_both_names_here() -> None:
    other = {**CLUSTER["servers"][0]["devices"][0], "uuid": "GPU-b", "index": 3}  # type: ignore[index]
    cluster = {**CLUSTER, "servers": [{"name": "alpha", "devices": [*CLUSTER["servers"][0]["devices"], other]}]}  # type: ignore[index]
    both = [*SESSION["devices"], {"uuid": "GPU-b", "share": 1.0, "memory_used": 0, "utilization": 0.0}]  # type: ignore[misc]
    card = render.status(session(devices=both), cluster, mask=f"GPU-b,{UUID}")
    assert card.html.count('role="meter"') == 2
    assert "1.5 of 2" in card.text
    assert "here cuda:1, cuda:0" in card.text


def test_a_kernel_masked_to_the_fourth_card_shows_that_cards_numbers_and_calls_it_its_first() -> None:
    """C5: NVML knows no mask; what the kernel calls cuda:0 is device 3 of the machine."""
    first = CLUSTER["servers"][0]["devices"][0]  # type: ignore[index]
    cards = [{**first, "uuid": f"GPU-{n}", "index": n, "memory_total": (n + 1) * 2**30} for n in range(4)]
    cluster = {**CLUSTER, "servers": [{"name": "alpha", "devices": cards}]}
    own = [{"uuid": "GPU-3", "share": 1.0, "memory_used": 3 * 2**30, "utilization": 0.25}]
    card = render.status(session(devices=own), cluster, mask="GPU-3")
    assert card.text.startswith("GPU 3 ")
    assert "memory 3.0 of 4 GiB   busy 25%" in card.text
    assert "here cuda:0" in card.text


def test_simulated_devices_are_marked_as_such() -> None:
    card = render.status(session(), {**CLUSTER, "simulated": True})
    assert '<span class="chip">simulated</span>' in card.html
    assert "simulated" in card.text


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla V100-PCIE-16GB", "V100 16GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
    ],
)
def test_models_have_the_name_people_know(model: str, said: str) -> None:
    assert render.model_name(model) == said


def test_history_leaves_a_gap_where_nothing_was_read() -> None:
    series = [{"share": s, "utilization": u, "gpu_s": 1.0} for s, u in ((0.1, 0.0), (0.5, None), (1.0, 1.0))]
    card = render.history({"since": 0.0, "until": 180.0, "series": series, "by_day": {"2026-12-02": 900.0}})
    assert card.text.splitlines() == ["share  ▁▅█", "busy   ▁ █", "the last 3 min 0 s   2026-12-02: 0.2 GPU-h"]


def test_a_wait_without_words_of_the_service_has_our_own() -> None:
    assert render.waiting({**WAITS, "message": ""}).text == "Waiting for a GPU, 3rd in line, about 4 min."
