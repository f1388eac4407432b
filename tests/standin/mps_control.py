"""A stand-in for nvidia-cuda-mps-control. Its state is a file in the folder of pipes; `scenario.json` beside this
program says what goes wrong (tests/standin/mps.py writes both and plays the clients).

    hang             commands that never answer ("-d" for the start)
    say              command -> what is answered instead
    dies             the server ends as soon as it was begun; its log says so
    no_status        too old for get_server_status
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PIPE = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))


def scenario() -> dict:
    try:
        return json.loads((HERE / "scenario.json").read_text())
    except FileNotFoundError:
        return {}


def note(file: str, line: str) -> None:
    with open(LOGS / file, "a") as log:
        log.write(f"[2026-12-02 10:00:00.000 Control] {line}\n")


def new_server(state: dict, uid: int) -> None:
    state["next"] += 1
    pid = state["next"]
    if scenario().get("dies"):
        state["dies"] = True  # also those that clients ask for
        note("server.log", f"Server {pid} encountered a fatal exception. Shutting down")
        return
    server = {"uid": uid, "state": "ACTIVE", "clients": {}, "percentage": state["percentage"]}
    state["servers"][str(pid)] = server | {"memory": dict(state["memory"])}


def answer(state: dict, words: list[str]) -> str:
    servers = state["servers"]
    match words:
        case ["get_server_list"]:
            return "".join(f"{pid}\n" for pid in servers)
        case ["get_server_status", pid] if not scenario().get("no_status"):
            return servers[pid]["state"] + "\n" if pid in servers else "Server not found\n"
        case ["get_client_list", pid]:
            return "".join(f"{client}\n" for client in servers.get(pid, {}).get("clients", ()))
        case ["start_server", "-uid", uid]:
            if not servers:
                new_server(state, int(uid))
            return ""
        case ["set_default_active_thread_percentage", value]:
            state["percentage"] = float(value)  # of servers yet to come
            return f"{float(value)}\n"
        case ["set_active_thread_percentage", pid, value]:
            servers[pid]["percentage"] = float(value)  # of clients yet to come
            return f"{float(value)}\n"
        case ["get_active_thread_percentage", pid]:
            return f"{servers[pid]['percentage']}\n"
        case ["set_default_device_pinned_mem_limit", device, value]:
            state["memory"][device] = value
            return ""
        case ["set_device_pinned_mem_limit", pid, device, value]:
            servers[pid]["memory"][device] = value
            return ""
        case ["terminate_client", pid, client]:
            servers[pid]["clients"].pop(client, None)
            return ""
        case ["quit"]:
            state["alive"] = False  # with every limit that was set
            return ""
    return f"Unrecognized command: {' '.join(words)}\n"


def main() -> int:
    arguments, text = sys.argv[1:], ""
    if "-d" not in arguments:
        text = sys.stdin.read().strip()
    command = "-d" if "-d" in arguments else text.split(" ")[0]
    with open(HERE / "calls", "a") as calls:
        calls.write(f"{PIPE.parent.name} {' '.join(arguments) or text}\n")
    if command in scenario().get("hang", ()):
        time.sleep(3600)
    if command in scenario().get("say", {}):
        print(scenario()["say"][command])
        return 0
    file = PIPE / "state.json"
    if command == "-d":
        if not PIPE.is_dir() or not LOGS.is_dir():
            print("Failed to create the pipe directory")
            return 1
        with open(PIPE / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if file.exists() and json.loads(file.read_text())["alive"]:
                print("An instance of this daemon is already running")
                return 1
            before = json.loads(file.read_text())["next"] if file.exists() else 9000
            visible, multiuser = os.environ.get("CUDA_VISIBLE_DEVICES"), "-multiuser-server" in arguments
            state = {"alive": True, "uid": os.getuid(), "multiuser": multiuser, "visible": visible}
            file.write_text(json.dumps(state | {"servers": {}, "percentage": 100.0, "memory": {}, "next": before}))
        note("control.log", "Start")
        return 0
    if not file.exists():
        print("Cannot find MPS control daemon process")
        return 1
    with open(PIPE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads(file.read_text())
        if not state["alive"]:
            print("Cannot find MPS control daemon process")
            return 1
        told = answer(state, text.split())
        file.write_text(json.dumps(state))
    print(told, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
