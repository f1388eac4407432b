"""A kernel that can do nothing but start fast, say what it is, and end. It keeps a list of what it was ever asked.

``python -S small_kernel.py CONNECTION_FILE LIST PACKAGES``, by the messaging protocol of jupyter_client, version 5.3.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent before a request to end, which is to be heard

import hmac  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import uuid  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.append(sys.argv[3])  # without `site` it starts in half the time

import zmq  # noqa: E402

INFO = {
    "status": "ok",
    "protocol_version": "5.3",
    "implementation": "small",
    "implementation_version": "0",
    "language_info": {"name": "none", "version": "0", "mimetype": "text/plain", "file_extension": ".txt"},
    "banner": "",
    "help_links": [],
}


def main(connection_file: str, asked: str) -> None:
    connection = json.loads(Path(connection_file).read_text())
    address = f"{connection['transport']}://{connection['ip']}:{{}}"
    context, poller, sockets = zmq.Context(), zmq.Poller(), {}
    for name, kind in (("shell", zmq.ROUTER), ("control", zmq.ROUTER), ("iopub", zmq.PUB), ("hb", zmq.REP)):
        sockets[name] = context.socket(kind)
        sockets[name].linger = 1000  # ms, for the reply to a request to end
        sockets[name].bind(address.format(connection[f"{name}_port"]))
        poller.register(sockets[name], zmq.POLLIN)
    key, me = connection["key"].encode(), uuid.uuid4().hex

    def note(kind: str) -> None:
        with open(asked, "a") as file:
            file.write(f"{kind}\n")

    def say(socket: zmq.Socket, who: list[bytes], kind: str, parent: bytes, content: object) -> None:
        header = {"msg_id": uuid.uuid4().hex, "session": me, "username": "", "version": "5.3", "msg_type": kind}
        header["date"] = "2026-01-01T00:00:00Z"
        parts = [json.dumps(header).encode(), parent, b"{}", json.dumps(content).encode()]
        signature = hmac.new(key, b"".join(parts), "sha256").hexdigest().encode()
        socket.send_multipart([*who, b"<IDS|MSG>", signature, *parts])

    note("started")
    while True:
        for socket, _ in poller.poll():
            if socket is sockets["hb"]:
                socket.send(socket.recv())
                continue
            if socket is sockets["iopub"]:
                continue
            frames = socket.recv_multipart()
            split = frames.index(b"<IDS|MSG>")
            who, header = frames[:split], frames[split + 2]
            kind = json.loads(header)["msg_type"]
            note(kind)
            say(sockets["iopub"], [b"status"], "status", header, {"execution_state": "busy"})
            if kind == "kernel_info_request":
                say(socket, who, "kernel_info_reply", header, INFO)
            say(sockets["iopub"], [b"status"], "status", header, {"execution_state": "idle"})
            if kind == "shutdown_request":
                say(socket, who, "shutdown_reply", header, {"status": "ok", "restart": True})
                return


if __name__ == "__main__":
    main(*sys.argv[1:3])
