"""Changes of a spawner that leave alone what others set there, and that can be taken back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

How = Literal["merge", "append", "join", "fill", "narrow"]
Pattern = tuple[str, str]  # of a trait's value as text
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one trait.

    Attributes
    ----------
    how : `merge` adds entries to a dict (nested ones too), `append` one entry to a list, `join` one to a text with
        `by` between, `fill` sets what is empty, `narrow` keeps those entries of a list that name the host `value`
    unless : left out where a trait's value matches: somebody decided that already
    only : left out where a trait's value does not match: it would have no effect there
    """

    trait: str
    value: Any
    how: How = "merge"
    by: str = " "
    unless: tuple[Pattern, ...] = ()
    only: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """A change that was made: the trait's value before it, and what it was like after."""

    change: Change
    before: Any
    after: Any


def make(spawner: Any, changes: Iterable[Change]) -> tuple[list[Made], list[str]]:
    """Makes the changes, and says of those that could not be made why: what is set there wins.

    Nothing is changed in place: a value may be shared with the configuration. Raises traitlets.TraitError for a value
    that a trait refuses, with what was done until then undone.
    """
    made: list[Made] = []
    kept: list[str] = []
    for change in changes:
        why = _against(spawner, change)
        before = getattr(spawner, change.trait, _NOTHING)
        if why is None and before is not _NOTHING:
            after = _changed(before, change, kept)
        if why is not None or before is _NOTHING or after is _NOTHING:
            kept.append(why or f"{change.trait} stays {_short(before)}, without {_short(change.value)}")
            continue
        if after is before:
            continue
        try:
            setattr(spawner, change.trait, after)
        except Exception:
            unmake(spawner, made)
            raise
        made.append(Made(change, before, _snapshot(getattr(spawner, change.trait))))
    return made, kept


def unmake(spawner: Any, made: Iterable[Made]) -> None:
    """Takes changes back, the last first. What others changed there since stays."""
    for one in reversed(list(made)):
        now = getattr(spawner, one.change.trait)
        if now == one.after:
            setattr(spawner, one.change.trait, one.before)
        elif isinstance(now, dict) and isinstance(one.before, dict):
            setattr(spawner, one.change.trait, _without(now, one.before, one.after))
        elif one.change.how == "append" and isinstance(now, list):
            setattr(spawner, one.change.trait, [entry for entry in now if entry != one.change.value])
        elif one.change.how == "join" and isinstance(now, str):
            setattr(spawner, one.change.trait, _cut(now, one.change.value, one.change.by))


def _snapshot(value: Any) -> Any:
    """The value as it is now, whatever is changed in place later."""
    if isinstance(value, dict):
        return {key: _snapshot(entry) for key, entry in value.items()}
    return [_snapshot(entry) for entry in value] if isinstance(value, list) else value


def _against(spawner: Any, change: Change) -> str | None:
    """What speaks against a change; None: nothing."""
    for trait, pattern in change.unless:
        if re.search(pattern, str(getattr(spawner, trait, ""))):
            return f"{trait} decides that already, so {change.trait} is left without {_short(change.value)}"
    for trait, pattern in change.only:
        if not re.search(pattern, str(getattr(spawner, trait, ""))):
            return f"{trait} has no place for {_short(change.value)} (it makes no use of {change.trait})"
    return None


def _changed(before: Any, change: Change, kept: list[str]) -> Any:
    """The new value, the old one where it is right already, _NOTHING where the change does not go with it."""
    value = change.value
    if change.how == "merge" and callable(before):
        return _Over(before, value)
    if change.how == "merge" and isinstance(before, dict):
        return _merged(before, value, change.trait, kept)
    if change.how == "append" and isinstance(before, list):
        return [*before, value]
    if change.how == "append" and isinstance(before, dict):  # lists by name, as Helm charts have them
        return {**before, "gpushare": value}
    if change.how == "join" and isinstance(before, str):
        return f"{before}{change.by}{value}" if before else value
    if change.how == "fill" and (not before or before == value):
        return value
    if change.how == "narrow" and isinstance(before, list):
        return [host for host in before if same_host(host, value)] or _NOTHING
    return _NOTHING


def same_host(one: str, other: str) -> bool:
    """Whether two names are of one host, where one of them may be without its domain."""
    a, b = one.lower().rstrip("."), other.lower().rstrip(".")
    return a == b or (("." not in a or "." not in b) and a.split(".")[0] == b.split(".")[0])


def _merged(theirs: dict[str, Any], ours: dict[str, Any], where: str, kept: list[str]) -> dict[str, Any]:
    """Theirs, with what they have not from ours; lists are theirs followed by ours."""
    merged = dict(theirs)
    for key, value in ours.items():
        there = theirs.get(key)
        if there is None:
            merged[key] = value
        elif isinstance(there, dict) and isinstance(value, dict):
            merged[key] = _merged(there, value, f"{where}[{key!r}]", kept)
        elif isinstance(there, list) and isinstance(value, list):
            merged[key] = [*there, *(entry for entry in value if entry not in there)]
        elif there != value:
            kept.append(f"{where}[{key!r}] stays {_short(there)}, not {_short(value)}")
    return theirs if merged == theirs else merged


def _without(now: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """`now`, with what still is as the change made it as it was before."""
    found = dict(now)
    for key, value in after.items():
        old = before.get(key, _NOTHING)
        if old == value or key not in now:
            continue
        if now[key] == value:
            if old is _NOTHING:
                del found[key]
            else:
                found[key] = old
        elif isinstance(now[key], dict) and isinstance(value, dict):
            found[key] = _without(now[key], old if isinstance(old, dict) else {}, value)
        elif isinstance(now[key], list) and isinstance(value, list):
            there = old if isinstance(old, list) else []
            found[key] = [entry for entry in now[key] if entry in there or entry not in value]
    return found


def _cut(now: str, value: str, by: str) -> str:
    """`now` without one `value` in it, and what joined it to its neighbour."""
    parts = now.partition(f"{by}{value}")
    if parts[1]:
        return parts[0] + parts[2]
    return now.removeprefix(value).removeprefix(by) if now.startswith(value) else now


@dataclass(frozen=True, slots=True)
class _Over:
    """A function of the spawner that an admin set; what it returns wins, key by key."""

    theirs: Any
    ours: dict[str, Any]

    def __call__(self, spawner: Any) -> Any:
        found = self.theirs(spawner)
        return self._later(found) if inspect.isawaitable(found) else self._with(found)

    async def _later(self, found: Any) -> Any:
        return self._with(await found)

    def _with(self, found: Any) -> dict[str, Any]:
        return {**self.ours, **(found or {})}


def _short(value: Any) -> str:
    text = "unset" if value is _NOTHING else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
