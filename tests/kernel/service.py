"""A GPU service for one kernel: answers what a test put there, remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GIB = 2**30
UUID = "GPU-aaaa-2"
SESSION = {
    "id": "k1",
    "user": "alice",
    "mine": True,
    "server": "alpha",
    "label": "train.ipynb",
    "path": "train.ipynb",
    "kind": "compute",
    "horizon": "bursty",
    "state": "active",
    "devices": [{"uuid": UUID, "share": 0.5, "memory_used": int(31.2 * GIB), "utilization": 0.86}],
    "guarantee": 0.1,
    "limit": 1.0,
    "idle_s": None,
    "reclaim_in_s": None,
    "pinned_until_s": None,
    "queue_position": None,
    "eta_s": None,
    "waiting_s": None,
    "demand": {"gpus": 0.1, "exclusive": False, "memory": None, "constraints": {"model": None, "server": None}},
    "parked_bytes": None,
    "moved_bytes": None,
    "next": {"code": "grow", "text": "Grows when others on this GPU pause.", "in_s": None},
    "charged_gpu_s": 1.4 * 3600,
    "message": "Computing on GPU 2.",
}
CLUSTER = {
    "simulated": False,
    "servers": [
        {
            "name": "alpha",
            "devices": [
                {
                    "uuid": UUID,
                    "index": 2,
                    "model": "NVIDIA A100-SXM4-80GB",
                    "sharing": "timeslice",
                    "memory_total": 80 * GIB,
                    "other_shares": [0.25],
                }
            ],
        }
    ],
    "queue": [],
    "summary": {"devices": 1, "free": 0.25, "waiting": 0},
}
ADMITTED = {"admitted": True, "state": "active", "devices": [], "indices": [], "message": "Computing on GPU 2."}
WAITS = {
    "admitted": False,
    "state": "waiting",
    "devices": [],
    "indices": [],
    "queue_position": 3,
    "eta_s": 240.0,
    "message": "Waiting for a GPU, 3rd in line, about 4 min. The cell starts by itself.",
}

WHY = {
    "terms": [
        {"name": "compute", "value": 0.62, "weight": 1.0, "text": "194 of 312 TFLOP/s"},
        {"name": "fragmentation", "value": -0.08, "weight": 1.0, "text": "others fit a little worse"},
        {"name": "locality", "value": 0.14, "weight": 1.0, "text": "nothing to move"},
        {"name": "energy", "value": 0.05, "weight": 1.0, "text": "40 W more"},
        {"name": "stability", "value": 0.03, "weight": 1.0, "text": "even load"},
    ],
    "alternatives": [{"device": UUID, "fitness": 0.45, "decisive": "compute", "text": "less compute free"}],
    "decided": [],
}

Answer = tuple[int, Any] | Callable[[Any], tuple[int, Any]]


class Service:
    """`answers` by "METHOD path"; `asked` is what came, in order, as (call, body)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[tuple[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.news = threading.Condition()
        self.answers: dict[str, Answer] = {
            "GET status": (200, CLUSTER),
            "GET sessions/k1": (200, SESSION),
            "POST sessions/k1/hello": (204, None),
            "POST sessions/k1/admit": (200, ADMITTED),
            "POST sessions/k1/leave": (204, None),
        }

    def calls(self, verb: str) -> list[Any]:
        """The bodies sent with this verb."""
        return [body for call, body in self.asked if call.endswith(f"/{verb}")]

    def wait_for(self, verb: str, timeout: float = 10.0) -> Any:
        """The first body sent with this verb, once it came."""
        with self.news:
            assert self.news.wait_for(lambda: self.calls(verb), timeout), f"{verb} was never asked: {self.asked}"
        return self.calls(verb)[0]

    def environment(self) -> dict[str, str]:
        return {"GPUSHARE_URL": self.url, "GPUSHARE_TOKEN": "secret", "GPUSHARE_SESSION": "k1"}


@contextmanager
def serve() -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            call = f"{self.command} {self.path.removeprefix('/gpushare/api/v1/')}"
            with running.news:
                running.asked.append((call, body))
                running.tokens.add(self.headers.get("Authorization"))
                running.news.notify_all()
            found = running.answers.get(call.partition("?")[0], (202, {"state": "idle", "message": ""}))
            status, answer = found(body) if callable(found) else found
            text = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 the names http.server looks for

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    running = Service(f"http://127.0.0.1:{server.server_address[1]}/gpushare/api/v1/")
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
