"""Sizes, durations, counts and places as people write and read them. Standard library only: kernels load this file."""

from __future__ import annotations

import math
import re

from .errors import BadDemand

_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)\s*")

GIB = 2**30


def _quantity(value: object, units: dict[str, float] | dict[str, int]) -> float | None:
    """The number behind a plain number or a string with a unit; None: there is none that could be used."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number, unit = float(value), ""
    else:
        found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if found is None or found[2].lower() not in units:
            return None
        number, unit = float(found[1]), found[2].lower()
    result = number * units[unit]
    return result if math.isfinite(result) and result >= 0 else None


def parse_bytes(value: object, field: str = "memory") -> int:
    """Bytes from ``20GiB``, ``512 MiB``, ``1e9``-free plain numbers. Raises BadDemand naming the field."""
    found = _quantity(value, _BYTES)
    if found is None:
        raise BadDemand(f"{field}: {value!r} is not a size such as 20GiB.")
    return int(found)


def parse_seconds(value: object, field: str = "duration") -> float:
    """Seconds from ``2h``, ``30m``, ``90``. Raises BadDemand naming the field."""
    found = _quantity(value, _SECONDS)
    if found is None:
        raise BadDemand(f"{field}: {value!r} is not a duration such as 2h or 30m.")
    return found


def format_bytes(size: float | None) -> str:
    """``6.1 GiB``, one decimal below 100; ``–`` where it was not read."""
    if size is None:
        return "–"
    gib = size / GIB
    return f"{gib:.1f} GiB" if gib < 100 else f"{gib:.0f} GiB"


def format_seconds(seconds: float | None) -> str:
    """A duration as people say it: ``under a minute``, ``3 min``, ``2 h 5 min``; ``–`` where unknown."""
    if seconds is None:
        return "–"
    minutes = int(seconds // 60)
    if minutes < 1:
        return "under a minute"
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def about(seconds: float | None) -> str:
    """An estimate: ``under a minute``, ``about 4 min``, ``more than an hour``, ``no estimate yet``."""
    if seconds is None:
        return "no estimate yet"
    if seconds < 60:
        return "under a minute"
    return "more than an hour" if seconds > 90 * 60 else f"about {round(seconds / 60)} min"


def plural(count: int, one: str) -> str:
    """``1 GPU``, ``2 GPUs``."""
    return f"{count} {one if count == 1 else one + 's'}"


def ordinal(number: int) -> str:
    """``3rd``."""
    endings = {} if number % 100 in (11, 12, 13) else {1: f"{number}st", 2: f"{number}nd", 3: f"{number}rd"}
    return endings.get(number % 10, f"{number}th")


def place(position: int | None) -> str:
    """``3rd in line``, ``in line`` where the place is not known."""
    return "in line" if position is None else f"{ordinal(position)} in line"
