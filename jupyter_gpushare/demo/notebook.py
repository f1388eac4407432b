"""A person at a notebook: starts it on a server and runs cells, one at a time or in the background."""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import dataclass, field
from typing import Any

from jupyter_client import BlockingKernelClient  # type: ignore[attr-defined]

from .servers import DemoFailed, Server, wait_for


@dataclass
class Run:
    """A cell that was sent: its text output so far, and how it ended."""

    code: str
    text: str = ""
    html: str = ""
    status: str | None = None  # ok, error; None: still running
    done: threading.Event = field(default_factory=threading.Event)

    def wait(self, timeout_s: float = 90.0) -> Run:
        """Itself, when it ended well. Raises DemoFailed with its output otherwise."""
        if not self.done.wait(timeout_s):
            raise DemoFailed(f"A cell did not end within {timeout_s:.0f} s: {self.code!r}\n{self.text}")
        if self.status != "ok":
            raise DemoFailed(f"A cell failed: {self.code!r}\n{self.text}")
        return self


class Notebook:
    """One notebook with a running kernel."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        started = server.ask(
            "POST",
            "api/sessions",
            {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}},
        )
        self.session_id: str = started["id"]
        self.kernel_id: str = started["kernel"]["id"]
        self._client = BlockingKernelClient(
            connection_file=str(server.runtime_dir / f"kernel-{self.kernel_id}.json"),
        )
        self._client.load_connection_file()
        self._client.start_channels(hb=False)  # a busy machine misses beats, and that proves nothing
        self._client.wait_for_ready(timeout=60)
        self._runs: dict[str, Run] = {}
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, code: str) -> Run:
        """Sends a cell and does not wait for it."""
        run = Run(code)
        message_id = self._client.execute(code)
        self._runs[message_id] = run
        return run

    def run(self, code: str, timeout_s: float = 90.0) -> Run:
        """Runs a cell to its end."""
        return self.start(code).wait(timeout_s)

    def run_all(self) -> list[tuple[str, Run]]:
        """Runs the notebook's code cells in order, as Run All does."""
        content = json.loads((self.server.notebooks / self.name).read_text())
        cells = ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]
        return [(code, self.run(code)) for code in cells]

    def session(self) -> dict[str, Any]:
        """What the status says of this notebook."""
        found: dict[str, Any] = self.server.gpu("GET", f"sessions/{self.kernel_id}")
        return found

    def until(self, what: str, *states: str, timeout_s: float = 30.0) -> dict[str, Any]:
        """The session as soon as it is in one of the states."""

        def there() -> dict[str, Any] | None:
            return found if (found := self.session())["state"] in states else None

        try:
            return wait_for(f"{self.name}: {what}", there, timeout_s)
        except DemoFailed as error:
            raise DemoFailed(f"{error} It says: {self.session()}") from error

    def act(self, verb: str, body: object = None) -> Any:
        return self.server.gpu("POST", f"sessions/{self.kernel_id}/{verb}", body or {})

    def close(self) -> None:
        """Shuts the kernel down, as closing it from the running list does."""
        self._closed.set()
        self._reader.join()
        self._client.stop_channels()
        self.server.ask("DELETE", f"api/sessions/{self.session_id}")

    def _read(self) -> None:
        while not self._closed.is_set():
            try:
                message = self._client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                continue
            run = self._runs.get(message["parent_header"].get("msg_id", ""))
            if run is None:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream":
                run.text += content["text"]
            elif kind in ("display_data", "execute_result", "update_display_data"):
                run.text += content["data"].get("text/plain", "") + "\n"
                run.html += content["data"].get("text/html", "")
            elif kind == "error":
                run.status = "error"
                run.text += "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                run.status = run.status or "ok"
                run.done.set()
