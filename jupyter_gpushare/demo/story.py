"""The product's promise as a story of three notebooks of two users on two GPUs, told by running it.

Each step waits for what it claims and fails, by name, when it does not happen. `see` is called at every step: the
browser tests take a picture there, so that what the API says and what a person sees are one story.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .notebook import Notebook
from .servers import DemoFailed, Server, wait_for

GIB = 2**30
USE = "from jupyter_gpushare.simulated import allocate, work"

See = Callable[[str, str], None]  # (name of the step, what was seen)


def unseen(name: str, text: str) -> None:
    """Nobody watches."""


@dataclass
class Events:
    """What a server's event stream told, read in the background."""

    server: Server
    acts: list[tuple[str, str]] = field(default_factory=list)  # (session, act)
    patches: int = 0

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        request = urllib.request.Request(  # noqa: S310 - our own server on loopback
            self.server.url + "gpushare/api/v1/events", headers={"Authorization": f"token {self.server.token}"}
        )
        kind = ""
        try:
            with urllib.request.urlopen(request, timeout=300) as stream:  # noqa: S310
                for raw in stream:
                    name, _, value = raw.decode().rstrip("\n").partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data" and kind == "decision":
                        decision = json.loads(value)
                        self.acts.append((decision["session"], decision["act"]))
                    elif name == "data" and kind == "patch":
                        self.patches += 1
        except OSError:
            return  # the server ended, and with it the story

    def expect(self, notebook: Notebook, *acts: str) -> None:
        """Waits until each act was told of that notebook."""
        for act in acts:
            wait_for(
                f"the event stream tells of {act!r} for {notebook.name} (told so far: {self.acts})",
                lambda act=act: (notebook.kernel_id, act) in self.acts,  # type: ignore[misc]
                10.0,
            )


def device_of(notebook: Notebook) -> dict[str, Any]:
    """The device that a notebook is placed on, as the status shows it."""
    session = notebook.session()
    for server in notebook.server.gpu("GET", "status")["servers"]:
        for device in server["devices"]:
            if session["devices"] and device["uuid"] == session["devices"][0]["uuid"]:
                return dict(device)
    raise DemoFailed(f"{notebook.name} has no device: {session}")


def share_of(notebook: Notebook) -> float:
    return float(sum(device["share"] for device in notebook.session()["devices"]))


def tell(alice: Server, bob: Server, see: See = unseen) -> None:
    """Runs the whole story. Raises DemoFailed at the first thing that does not happen."""
    events = Events(alice)
    train, features, explore = _open_three(alice, bob, see)
    _different_devices(train, features, see)
    _shares_move(features, explore, events, see)
    _idle_is_parked_and_comes_back(features, explore, events, see)
    for notebook in (train, features, explore):
        notebook.close()
    wait_for(
        "the three notebooks give back what they held",
        lambda: all(
            device["allocated"] == 0 and not device["memory_used"]
            for server in alice.gpu("GET", "status")["servers"]
            for device in server["devices"]
        ),
        30.0,
    )
    see("closed", "Closing the notebooks gave everything back: both GPUs are empty.")


def guided(alice: Server, see: See = unseen) -> None:
    """Runs the guided notebook from top to bottom."""
    guide = Notebook(alice, "guide.ipynb")
    for code, run in guide.run_all():
        first = code.splitlines()[0]
        said = run.text.strip().splitlines()
        print(f"    {first:<62.62} {said[0][:90] if said else ''}")
    guide.close()
    see("guide", "The guided notebook ran to its end.")


def _open_three(alice: Server, bob: Server, see: See) -> tuple[Notebook, Notebook, Notebook]:
    train, features = Notebook(alice, "train.ipynb"), Notebook(alice, "features.ipynb")
    explore = Notebook(bob, "explore.ipynb")
    for notebook in (train, features, explore):
        notebook.until("starts at once and is bound", "bound")
    see("bound", "Three kernels of two users started at once; each is bound to a GPU and holds nothing yet.")
    for notebook in (train, features, explore):
        notebook.run(USE)
    return train, features, explore


def _different_devices(train: Notebook, features: Notebook, see: See) -> None:
    running = [
        train.start('work(seconds=4, utilization=0.95, memory="8GiB")'),
        features.start('table = allocate("50GiB"); secret = 42; work(seconds=4, utilization=0.6, kind="data")'),
    ]
    train.until("computes", "active")
    features.until("computes", "active")
    landed = {notebook.name: device_of(notebook) for notebook in (train, features)}
    if landed["train.ipynb"]["uuid"] == landed["features.ipynb"]["uuid"]:
        raise DemoFailed(f"Compute- and memory-bound notebooks share a GPU although another one is free: {landed}")
    if "L40S" not in landed["train.ipynb"]["model"] or "A100" not in landed["features.ipynb"]["model"]:
        raise DemoFailed(f"The GPUs do not fit the notebooks' kinds: {landed}")
    see(
        "placed",
        "train (bound by compute) is on the L40S with its 362 TFLOP/s, "
        "features (bound by memory) on the A100 with its 2,039 GB/s.",
    )
    for run in running:
        run.wait()


def _shares_move(features: Notebook, explore: Notebook, events: Events, see: See) -> None:
    busy = features.start('work(seconds=40, utilization=0.95, kind="mixed")')
    grown = wait_for(
        "the busy notebook's share grows while its neighbour idles",
        lambda: share if (share := share_of(features)) > 0.9 else None,
    )
    see("grown", f"While its neighbour idles, the share of features grew to {grown:.0%}.")
    back = explore.start('work(seconds=6, utilization=0.9, memory="4GiB")')
    shrunk = wait_for(
        "its share shrinks when the neighbour returns",
        lambda: share if 0 < (share := share_of(features)) < 0.8 else None,
    )
    returned = wait_for(
        "the neighbour has its guarantee", lambda: share if (share := share_of(explore)) >= 0.25 else None
    )
    see("shrunk", f"When explore returned it had {returned:.0%} at once, and features went to {shrunk:.0%}.")
    back.wait()
    again = wait_for("its share grows again", lambda: share if (share := share_of(features)) > 0.9 else None)
    see("grown-again", f"explore paused, and features is back at {again:.0%}.")
    busy.wait(120)
    events.expect(features, "place", "expand", "shrink")


def _idle_is_parked_and_comes_back(features: Notebook, explore: Notebook, events: Events, see: See) -> None:
    features.until("idles", "idle")
    features.act("pin", {"for_s": 3600})
    explore.run("%gpu request --memory 60GiB")
    waiter = explore.start('work(seconds=2, utilization=0.9, memory="60GiB")')
    features_memory = sum(device["memory_used"] for device in features.session()["devices"])
    if features_memory < 50 * GIB:
        raise DemoFailed(f"features should hold 50 GiB, the status says {features_memory / GIB:.1f} GiB")
    explore.until("waits for 60 GiB on the A100", "waiting")
    settings_due = time.monotonic() + 12.0  # idle_after_s + warn_before_s and as much again
    while time.monotonic() < settings_due:
        pinned = features.session()
        if pinned["state"] not in ("idle", "active") or pinned["reclaim_in_s"] is not None:
            raise DemoFailed(f"a pinned notebook was taken, or told that it would be: {pinned}")
        time.sleep(0.5)
    see("pinned", "explore waits for 60 GiB; features idles with 50 GiB, but is pinned: nothing was taken for 12 s.")
    features.act("unpin")
    warned = wait_for(
        "features is told before it is parked",
        lambda: (
            found if (found := features.session())["reclaim_in_s"] is not None and found["state"] == "idle" else None
        ),
    )
    see("warned", f"Unpinned, features was told: parked in {warned['reclaim_in_s']:.0f} s.")
    parked = features.until("is parked", "parked")
    see("parked", f"features is parked: {parked['parked_bytes'] / GIB:.1f} GiB rest in host memory.")
    waiter.wait()
    explore.run("del_me = None")
    see("waiter-served", "The cell of explore that waited has run.")
    explore.act("release")
    said = features.run("work(seconds=1, utilization=0.5); print(secret, table)").text
    resumed = features.session()
    memory = sum(device["memory_used"] for device in resumed["devices"])
    if "42" not in said or memory < 50 * GIB:
        raise DemoFailed(f"features came back without its state: it printed {said!r} and holds {memory / GIB:.1f} GiB")
    events.expect(features, "warn", "park", "resume")
    see("resumed", f"features ran its next cell: variables intact, {memory / GIB:.1f} GiB back on the A100.")
