"""A burst is an execute_request that runs, and nothing else that a kernel says."""

from __future__ import annotations

import json

import pytest

from jupyter_gpushare.server.activity import Activity


class Kernel:
    """A kernel manager whose iopub is a list."""

    def connect_iopub(self):
        return self

    def on_recv(self, see) -> None:
        self.see = see

    def closed(self) -> bool:
        return False

    def close(self) -> None:
        pass


def message(kind: str, parent: str, cell: str = "1", **content: object) -> list[bytes]:
    header, asked = {"msg_type": kind, "msg_id": "x"}, {"msg_type": parent, "msg_id": cell}
    return [b"topic", b"<IDS|MSG>", b"", *(json.dumps(part).encode() for part in (header, asked, {}, content))]


@pytest.fixture
def told():
    return []


@pytest.fixture
def activity(told):
    return Activity(Kernel(), told.append)


def test_a_cell_is_a_burst_from_busy_to_idle(activity, told):
    for state in ("busy", "idle"):
        activity.see(message("status", "execute_request", execution_state=state))

    assert told == ["start", "end"]


@pytest.mark.parametrize(
    "request_", ["complete_request", "inspect_request", "comm_msg", "usage_request", "kernel_info_request"]
)
def test_looking_at_a_kernel_is_no_burst(activity, told, request_):
    activity.see(message("status", request_, execution_state="busy"))

    assert told == []


def test_overlapping_cells_are_one_burst(activity, told):
    for cell, state in (("1", "busy"), ("2", "busy"), ("1", "idle"), ("2", "idle")):
        activity.see(message("status", "execute_request", cell, execution_state=state))

    assert told == ["start", "end"]


def test_a_process_that_goes_while_a_cell_runs_ends_the_burst_and_the_next_begins_idle(activity, told):
    activity.see(message("status", "execute_request", execution_state="busy"))
    activity.close()
    assert told == ["start", "end"]

    successor = Activity(Kernel(), told.append)
    successor.see(message("status", "execute_request", execution_state="idle"))  # of the process before
    assert told == ["start", "end"]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"no delimiter"],
        [b"<IDS|MSG>", b""],
        [b"<IDS|MSG>", b"", b'{"msg_type": "status"', b'{"msg_type": "execute_request"}', b"{}", b"{}"],
        message("stream", "execute_request", text='"status" of "execute_request": busy'),
    ],
)
def test_what_is_no_status_of_a_cell_is_passed_over(activity, told, frames):
    activity.see(frames)

    assert told == []
