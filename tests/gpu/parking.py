"""Steps about moving GPU memory to the host and back, and about what must not be tried."""

from __future__ import annotations

import time
from typing import Any

import psutil

from jupyter_gpushare.node.checkpoint_driver import HelperDriver

from .bench import CALL_S, MOVE_S, Impossible, Options, Worker, driver, need_alone, need_room, seen, timed, workers


def move(options: Options, gigabytes: int) -> dict[str, Any]:
    """Lock, checkpoint, restore, unlock of one process through a warm helper, and whether its memory came back."""
    size = gigabytes * options.unit
    with driver() as warm, workers(options) as (worker,):
        need_room(options, size, worker.pid)
        worker.ask("hold", bytes=size)
        return moved(warm, worker, options, size)


def moved(helper: HelperDriver, worker: Worker, options: Options, size: int) -> dict[str, Any]:
    """The four calls, their times, and what was seen between them. Stops at the first that is refused."""
    before, resident = seen(options.device).memory_used, psutil.Process(worker.pid).memory_info().rss
    found: dict[str, Any] = {"bytes": size}
    calls = {
        "lock": lambda: helper.lock(worker.pid, 5.0, CALL_S),
        "checkpoint": lambda: helper.checkpoint(worker.pid, MOVE_S),
        "restore": lambda: helper.restore(worker.pid, (), MOVE_S),
        "unlock": lambda: helper.unlock(worker.pid, CALL_S),
    }
    for name, call in calls.items():
        found[f"{name}_s"], code, words = timed(call)
        if code is not None:
            return found | {"refused": name, "code": code, "words": words}
        if name in ("checkpoint", "restore"):
            found[f"{name}_gb_s"] = size / 1e9 / max(found[f"{name}_s"], 1e-9)
        if name == "checkpoint":
            device = seen(options.device)
            if before is not None and device.memory_used is not None:
                found["device_memory_freed"] = before - device.memory_used
            found["host_memory_grown"] = psutil.Process(worker.pid).memory_info().rss - resident
            found["listed_while_parked"] = worker.pid in {process.pid for process in device.processes}
    return found | {"differing_words": worker.ask("check")["differing_words"]}


def cold(options: Options) -> dict[str, Any]:
    """As `move` for 1 GB, but every call starts a helper of its own, as calling a program each time would."""
    with workers(options) as (worker,):
        need_room(options, options.unit, worker.pid)
        worker.ask("hold", bytes=options.unit)
        found: dict[str, Any] = {"bytes": options.unit}
        for name in ("lock", "checkpoint", "restore", "unlock"):
            began = time.monotonic()
            with driver() as helper:
                arguments = {"lock": (5.0, CALL_S), "restore": ((), MOVE_S)}.get(name, (MOVE_S,))
                _, code, words = timed(lambda: getattr(helper, name)(worker.pid, *arguments))  # noqa: B023
            found[f"{name}_s"] = time.monotonic() - began
            if code is not None:
                return found | {"refused": name, "code": code, "words": words}
        return found | {"differing_words": worker.ask("check")["differing_words"]}


def managed(options: Options) -> dict[str, Any]:
    """A process with managed memory: what the driver answers, and whether the process goes on afterwards."""
    size = options.unit // 4
    with driver() as helper, workers(options) as (worker,):
        need_room(options, size, worker.pid)
        worker.ask("hold", bytes=size, managed=True)
        return _tried(helper, worker, options, size)


def _tried(helper: HelperDriver, worker: Worker, options: Options, size: int) -> dict[str, Any]:
    """A move that may be refused: afterwards the process is unlocked if it can be, and asked whether it still works."""
    found = moved(helper, worker, options, size)
    if "refused" not in found:
        return found
    _, code, state = *timed(lambda: helper.unlock(worker.pid, CALL_S))[:2], _state(helper, worker.pid)
    found |= {"unlock_code": code, "state_after": state, "alive": worker.alive()}
    worker.tell("check")
    return found | {"works_after": "differing_words" in (worker.hear(CALL_S) or {})}


def _state(helper: HelperDriver, pid: int) -> int | None:
    found: list[int] = []
    timed(lambda: found.append(helper.state(pid, CALL_S)))
    return found[0] if found else None


def children(options: Options) -> dict[str, Any]:
    """A process whose child has a context too: what moving only the parent leaves, and both together."""
    size = options.unit // 4
    with driver() as helper, workers(options) as (worker,):
        need_room(options, 2 * size, worker.pid)
        worker.ask("hold", bytes=size)
        child = worker.ask("child", bytes=size)["pid"]
        found: dict[str, Any] = {"bytes_each": size}
        for who in ("parent", "child"):
            pid = worker.pid if who == "parent" else child
            for call in (lambda p=pid: helper.lock(p, 5.0, CALL_S), lambda p=pid: helper.checkpoint(p, MOVE_S)):
                _, code, words = timed(call)
                if code is not None:
                    return found | {"refused": who, "code": code, "words": words}
            here = {process.pid for process in seen(options.device).processes}
            found[f"listed_after_{who}"] = sorted(
                name for name, each in (("parent", worker.pid), ("child", child)) if each in here
            )
        for pid in (child, worker.pid):
            for call in (lambda p=pid: helper.restore(p, (), MOVE_S), lambda p=pid: helper.unlock(p, CALL_S)):
                _, code, words = timed(call)
                if code is not None:
                    return found | {"refused": "restore", "code": code, "words": words}
        return found | {"differing_words": worker.ask("check")["differing_words"]}


def full(options: Options) -> dict[str, Any]:
    """A restore without room, in a throwaway process, and again once there is room: is it lost for good?"""
    size = options.unit
    need_alone(options)
    with driver() as helper, workers(options, 2) as (worker, other):
        need_room(options, size, worker.pid)
        worker.ask("hold", bytes=size)
        for call in (lambda: helper.lock(worker.pid, 5.0, CALL_S), lambda: helper.checkpoint(worker.pid, MOVE_S)):
            _, code, words = timed(call)
            if code is not None:
                raise Impossible(f"It could not be parked: {words} ({code}).")
        taken = _fill(other, size)
        found: dict[str, Any] = {"bytes": size, "taken": taken}
        found["restore_s"], found["restore_code"], found["restore_words"] = timed(
            lambda: helper.restore(worker.pid, (), MOVE_S)
        )
        other.ask("release")
        _, found["again_code"], found["again_words"] = timed(lambda: helper.restore(worker.pid, (), MOVE_S))
        found["state_after"] = _state(helper, worker.pid)
        if found["restore_code"] is None or found["again_code"] is None:
            timed(lambda: helper.unlock(worker.pid, CALL_S))
            worker.tell("check")
            found["differing_words"] = (worker.hear(30.0) or {}).get("differing_words")
        return found


def _fill(worker: Worker, least: int) -> int:
    """Takes all of the device but less than `least` bytes. What was taken."""
    taken = 0
    while (free := worker.ask("room")["free"]) > least * 3 // 4:
        piece = max(free - least // 2, least // 16)
        try:
            taken += worker.ask("hold", bytes=piece - piece % 4)["bytes"]
        except Impossible:
            break
    return taken


def interrupt(options: Options) -> dict[str, Any]:
    """Ctrl-C to a process whose CUDA call waits because it is locked: does it break the wait?"""
    with driver() as helper, workers(options) as (worker,):
        worker.ask("spin", seconds=0.2)
        _, code, words = timed(lambda: helper.lock(worker.pid, 5.0, CALL_S))
        if code is not None:
            raise Impossible(f"It could not be locked: {words} ({code}).")
        worker.tell("spin", seconds=0.2)
        early = worker.hear(0.5)
        worker.interrupt()
        during = worker.hear(3.0)
        _, unlock_code, _ = timed(lambda: helper.unlock(worker.pid, CALL_S))
        after = during if during is not None else worker.hear(10.0)
        return {
            "call_waits_while_locked": early is None,
            "interrupt_breaks_the_wait": during is not None,
            "unlock_code": unlock_code,
            "answer": (after or {}).get("error", "done" if after else None),
            "alive": worker.alive(),
        }
