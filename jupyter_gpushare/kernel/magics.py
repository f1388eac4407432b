"""``%gpu`` and ``%%gpu``: what a person types, turned into the session's verbs, and the answers shown."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from .. import units
from ..errors import BadDemand, Conflict, GPUShareError, Unavailable
from . import render
from .render import Card
from .words import __, say

if TYPE_CHECKING:
    from .client import Session
    from .hooks import Kernel


def run(shell: Any, kernel: Kernel | None, line: str, cell: str | None) -> None:
    """Does what the line says. Raises UsageError, one line, for what is mistyped; everything else is shown."""
    try:
        words = shlex.split(line)
    except ValueError:
        raise _mistyped(f"{line!r} has a quote that is not closed.") from None
    if kernel is None:
        show(render.note("none", _not_managed()))
        if cell is not None:  # a notebook that names its GPU cells runs anywhere
            _run(shell, cell)
        return
    try:
        if cell is not None:
            _for_this_cell(shell, kernel, words, cell)
        else:
            _line(kernel.session, words)
    except BadDemand as error:
        raise _mistyped(str(error)) from None
    except GPUShareError as error:
        show(_refusal(error))
        if cell is not None:
            raise _shown("The cell did not run: no GPU was granted.") from None


def _not_managed() -> str:
    return __("jupyter-gpushare does not manage this kernel: start it from a Jupyter server that has the GPU service.")


def _mistyped(why: str) -> Exception:
    from IPython.core.error import UsageError

    return UsageError("%gpu: " + say(why))


def _refusal(error: GPUShareError) -> Card:
    if isinstance(error, Unavailable):
        untouched = __("This notebook is untouched. (%1)", say(str(error)))
        return render.note("lost", __("The GPU service does not answer."), untouched)
    if isinstance(error, Conflict):
        return render.note("refused", __("Not granted."), say(str(error).removeprefix("Not granted. ")))
    return render.note("refused", __("Not done."), say(str(error)))


def show(card: Card) -> None:
    from IPython.display import display

    display(card)  # type: ignore[no-untyped-call]


def _line(session: Session, words: list[str]) -> None:
    verb, *rest = words or ["status"]
    act = _VERBS.get(verb)
    if act is None:
        known = ", ".join(name for name in _VERBS if name != "status")
        raise BadDemand(f"{verb!r} is not known; there are {known}.")
    show(act(session, rest))


def _for_this_cell(shell: Any, kernel: Kernel, words: list[str], cell: str) -> None:
    """Takes a device up, runs the cell behind the gate, gives the device back, however the cell ends."""
    _none(words)
    session = kernel.session
    try:
        session.resume()
    except Unavailable:
        pass  # the cell runs all the same
    try:
        _run(shell, cell)
    finally:
        try:
            session.release()
        except Unavailable:
            pass  # given back with the kernel's end at the latest


def _run(shell: Any, cell: str) -> None:
    if not shell.run_cell(cell, store_history=False).success:
        raise _shown("The cell under %%gpu did not succeed.")


def _shown(message: str) -> Exception:
    """Ends the outer cell as failed without showing again what was shown."""

    class CellFailed(Exception):
        def _render_traceback_(self) -> list[str]:
            return []

    return CellFailed(say(message))


# --- the verbs ---


def _status(session: Session, words: list[str]) -> Card:
    _none(words)
    return _now(session)


def _now(session: Session) -> Card:
    return render.status(session.status(), session.cluster(), os.environ.get("CUDA_VISIBLE_DEVICES", ""))


def _why(session: Session, words: list[str]) -> Card:
    _none(words)
    return render.why(session.why(), session.status(), session.cluster())


def _request(session: Session, words: list[str]) -> Card:
    asked: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if word in ("--exclusive", "--restart"):
            asked[word[2:]] = True
        elif word.partition("=")[0] in ("--memory", "--model", "--server"):
            option, given, value = word.partition("=")
            value = value if given else next(rest, "")
            if not value or value.startswith("--"):
                raise BadDemand(f"{option}: a value is missing.")
            asked[option[2:]] = units.parse_bytes(value) if option == "--memory" else value
        elif word.startswith("-") and not word[1:2].isdigit():
            raise BadDemand(f"{word!r} is not known; there are --memory, --exclusive, --model, --server, --restart.")
        elif "gpus" in asked:
            raise BadDemand(f"{word!r} is one word too many.")
        else:
            asked["gpus"] = _number(word)
    if not asked:
        raise BadDemand("request: how many GPUs? Such as %gpu request 2, or %gpu request 0.5.")
    session.request(**asked)
    return _now(session)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise BadDemand(f"{word!r} is not a number of GPUs.") from None


def _near(session: Session, words: list[str]) -> Card:
    session.near(*words)
    return render.note("active", __("Noted."), __("Devices close to %1 are preferred from now on.", ", ".join(words)))


def _release(session: Session, words: list[str]) -> Card:
    _none(words)
    session.release()
    return render.note("none", __("Given back."), __("Your variables stay. Ask again with"), "%gpu resume")


def _pin(session: Session, words: list[str]) -> Card:
    duration, *more = words or ["1h"]
    _none(more)
    seconds = units.parse_seconds(duration, "pin")
    session.pin(seconds)
    until = datetime.now().astimezone() + timedelta(seconds=seconds)
    shown = f"{until:%H:%M}" if seconds < 20 * 3600 else f"{_weekday(until)} {until:%H:%M}"
    undo = __("Nothing will be parked before then. Undo with")
    return render.note("idle", __("Kept until %1.", shown), undo, "%gpu unpin")


def _weekday(day: datetime) -> str:
    return (__("Mon"), __("Tue"), __("Wed"), __("Thu"), __("Fri"), __("Sat"), __("Sun"))[day.weekday()]


def _unpin(session: Session, words: list[str]) -> Card:
    _none(words)
    session.unpin()
    return render.note("idle", __("No longer kept."), __("It stays while nobody waits."))


def _park(session: Session, words: list[str]) -> Card:
    _none(words)
    answer = session.park()
    said = say(answer.get("message") or "") or __("Being parked. Your variables stay.")
    return render.note(answer.get("state", "parking"), said, __("Bring it back with"), "%gpu resume")


def _resume(session: Session, words: list[str]) -> Card:
    _none(words)
    answer = session.resume()
    return render.note(answer.get("state", "resuming"), say(answer.get("message") or "") or __("Coming back."))


_pool: Any = None  # a kernel has one at most


def _pool_line(session: Session, words: list[str]) -> Card:
    global _pool
    rest, engine, asked = iter(words), None, dict[str, Any]()
    count = None
    for word in rest:
        option, given, value = word.partition("=")
        if option in ("--engine", "--memory", "--model"):
            value = value if given else next(rest, "")
            if not value or value.startswith("--"):
                raise BadDemand(f"{option}: a value is missing.")
            if option == "--engine":
                engine = value
            else:
                asked[option[2:]] = value
        elif count is None:
            count = word
        else:
            raise BadDemand(f"{word!r} is one word too many.")
    if count is None:
        return render.pool(session.pool_call("GET", "pool"))
    if count == "end":
        from .pool import Pool

        (_pool or Pool(session, session.pool_call("GET", "pool"))).end()
        _pool = None
        return render.note("none", __("The pool ended."), __("Its GPUs were given back."))
    if not count.isdecimal() or int(count) < 1:
        raise BadDemand(f"{count!r} is not a number of GPUs.")
    _pool = session.pool(int(count), engine, **asked)
    _named({"pool": _pool, **({} if _pool.client is None else {"client": _pool.client})})
    return render.pool(_pool.seen)


def _named(values: dict[str, Any]) -> None:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()  # type: ignore[no-untyped-call]
    if shell is not None:
        shell.push(values)


def _history(session: Session, words: list[str]) -> Card:
    _none(words)
    return render.history(session.history())


def _wait(session: Session, words: list[str]) -> Card:
    _none(words)
    from .hooks import adopt, interruptible

    shown = Waiting()
    try:
        with interruptible(shown.answer) as seen:
            answer = session.wait(seen=seen)
    except KeyboardInterrupt:
        shown.clear()
        return render.note("none", __("Stopped waiting."), __("Your place in line is given up."))
    shown.clear()
    adopt(answer)
    return _now(session)


def _none(words: list[str]) -> None:
    if words:
        raise BadDemand(f"{words[0]!r} is one word too many.")


_VERBS: dict[str, Callable[[Session, list[str]], Card]] = {
    "status": _status,
    "why": _why,
    "request": _request,
    "near": _near,
    "wait": _wait,
    "pin": _pin,
    "unpin": _unpin,
    "park": _park,
    "resume": _resume,
    "release": _release,
    "history": _history,
    "pool": _pool_line,
}


class Waiting:
    """What is shown of a wait: nothing until there is something to say, then one output that is kept up to date."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._handle: Any = None
        self._text = ""

    def answer(self, answer: dict[str, Any]) -> None:
        card = render.waiting(answer, self._clock() - self._began)
        if answer.get("message") != self._text:  # a console prints each update as another line
            self._text = answer.get("message", "")
            self._show(card)

    def done(self) -> None:
        if self._handle is not None:
            waited = __("Waited %1 s.", f"{self._clock() - self._began:.0f}")
            self._show(render.note("active", __("The GPU is here."), waited))

    def clear(self) -> None:
        """Leaves no line about a wait that is over."""
        if self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)

    def say(self, text: str) -> None:
        self._show(render.note("lost", text))

    def _show(self, card: Card) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(card, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(card)
