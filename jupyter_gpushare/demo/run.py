"""`jupyter gpushare demo`: JupyterLab on simulated GPUs, for a person to play with or headless to the end."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import webbrowser
from pathlib import Path

from . import hub as hubs
from . import hub_story
from .notebook import Notebook
from .servers import DemoFailed, Server, serving
from .story import USE, guided, tell


def _see(name: str, text: str) -> None:
    print(f"  ✓ {text}", flush=True)


def _failed(error: DemoFailed, folder: Path) -> int:
    """Says what did not happen, and what the logs end with."""
    print(f"  ✗ {error}", flush=True)
    for log in sorted(folder.glob("*.log")):
        print(f"--- the end of {log.name}", *log.read_text().splitlines()[-25:], sep="\n")
    return 1


def check_hub() -> int:
    """A hub of three GPU servers, headless to the end; 0 when all of it happened."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-demo-")))
        try:
            print("Starting a JupyterHub with three GPU servers …", flush=True)
            hub = stack.enter_context(hubs.hub(folder))
            _see("started", f"{hub.url}: {_parts(hub)}")
            hub_story.tell(hub, _see)
        except DemoFailed as error:
            return _failed(error, folder)
    print("All of it happened.", flush=True)
    return 0


def show_hub(port: int = 0, browser: bool = True) -> int:
    """Opens a hub of three GPU servers, with bob as a lively neighbour, until Ctrl-C."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-demo-")))
        ended = threading.Event()
        stack.callback(ended.set)
        try:
            print("Starting a JupyterHub with three GPU servers …", flush=True)
            hub = stack.enter_context(hubs.hub(folder, port))
            threading.Thread(target=_neighbour, args=(hub.user("bob"), ended), daemon=True).start()
            print(f"\n    {hub.url}\n    {hub.overview_url}\n\nLog in with any name and any password.", end=" ")
            print(f"{hubs.ADMIN} is the admin of the overview page. {_parts(hub)}")
            print("bob uses a GPU now and then. Ctrl-C ends all of it.", flush=True)
            if browser:
                webbrowser.open(hub.url)
            hub.programs.running["hub"].wait()
        except KeyboardInterrupt:
            print("\nEnding the hub; everything the demo made is removed.")
        except DemoFailed as error:
            print(error)
            return 1
    return 0


def _parts(hub: hubs.Hub) -> str:
    if hub.agents:
        return f"hub, proxy, NATS, the GPU service and the agents of {', '.join(hub.agents)}."
    return "hub, proxy and the GPU service, which simulates the servers (no nats-server is installed)."


def check() -> int:
    """Runs the guided notebook and the whole story headless, prints what happened; 0 when all of it did."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-demo-")))
        try:
            print("Starting two Jupyter servers (alice, bob) on simulated GPUs …", flush=True)
            alice = stack.enter_context(serving("alice", folder))
            bob = stack.enter_context(serving("bob", folder, lab=False))
            _see("started", f"{alice.url} and {bob.url} share one broker and two GPUs.")
            print("Running the guided notebook …", flush=True)
            guided(alice, _see)
            print("Three notebooks of two users …", flush=True)
            tell(alice, bob, _see)
        except DemoFailed as error:
            return _failed(error, folder)
    print("All of it happened.", flush=True)
    return 0


def show(port: int = 0, browser: bool = True) -> int:
    """Opens JupyterLab as alice, with bob as a lively neighbour, until Ctrl-C."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-demo-")))
        ended = threading.Event()
        try:
            print("Starting JupyterLab on simulated GPUs …", flush=True)
            alice = stack.enter_context(serving("alice", folder, port=port))
            bob = stack.enter_context(serving("bob", folder, lab=False))
            neighbour = threading.Thread(target=_neighbour, args=(bob, ended), daemon=True)
            neighbour.start()
            print(f"\n    {alice.lab_url}\n\nOpen it, run the guided notebook, watch the GPU panel on the left.")
            print("bob, on a server of his own, uses a GPU now and then. Ctrl-C ends both.", flush=True)
            if browser:
                webbrowser.open(alice.lab_url)
            alice.process.wait()
        except KeyboardInterrupt:
            print("\nEnding both servers; everything the demo made is removed.")
        except DemoFailed as error:
            print(error)
            return 1
        finally:
            ended.set()
    return 0


def _neighbour(bob: Server, ended: threading.Event) -> None:
    """Bursts and pauses like a person at a notebook."""
    try:
        explore = Notebook(bob, "explore.ipynb")
        explore.run(USE)
        while not ended.is_set():
            explore.run('work(seconds=12, utilization=0.8, memory="20GiB")', timeout_s=600)
            ended.wait(20)
    except (DemoFailed, OSError, RuntimeError):
        return  # the demo is ending
