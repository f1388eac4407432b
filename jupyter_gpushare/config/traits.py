"""Traits whose errors are one line that says what is allowed."""

from __future__ import annotations

import math
from typing import Any, NoReturn, TypeVar

import msgspec
from traitlets import Bool, Bunch, Dict, Enum, Float, List, TraitError, TraitType, Unicode

Wanted = TypeVar("Wanted")


def unusable(trait: TraitType, owner: object, value: object, allowed: str) -> NoReturn:
    shown = " ".join(repr(value).split())
    raise TraitError(f"{type(owner).__name__}.{trait.name}: {shown} is not usable; {allowed.rstrip('.')}.")


class OneLine:
    """A trait that can be set in a config file, and that says what is wrong with a value in the house's form."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tag(config=True)

    def error(self, obj: Any, value: Any, error: Exception | None = None, info: str | None = None) -> NoReturn:
        unusable(self, obj, value, f"it must be {info or self.info()}")


class Choice(OneLine, Enum):
    def info(self, as_rst: bool = False) -> str:
        return "one of " + ", ".join(repr(value) for value in self.values)


class Text(OneLine, Unicode):
    pass


class Switch(OneLine, Bool):
    pass


class Table(OneLine, Dict):
    pass


class Entries(OneLine, List):
    pass


class Number(OneLine, Float):
    """A finite number within bounds; an int where it counts something. None only where that is its default."""

    def __init__(
        self,
        default_value: float | None,
        *,
        least: float = 0.0,
        most: float = math.inf,
        whole: bool = False,
        help: str,  # noqa: A002  traitlets' name
    ) -> None:
        super().__init__(default_value, allow_none=default_value is None, help=help)
        self.least, self.most, self.whole = least, most, whole

    def info(self) -> str:
        bounds = f"of at least {self.least:g}" + ("" if math.isinf(self.most) else f" and at most {self.most:g}")
        return f"a {'whole ' if self.whole else ''}number {bounds}" + (" or None" if self.allow_none else "")

    def validate(self, obj: Any, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.error(obj, value)
        if not self.least <= value <= self.most or (self.whole and value != int(value)):
            self.error(obj, value)
        return int(value) if self.whole else float(value)


def as_type(proposal: Bunch, wanted: type[Wanted], *, strict: bool = True) -> Wanted:
    """The proposed value as that type. The error names the place inside it."""
    try:
        return msgspec.convert(proposal.value, wanted, strict=strict)
    except msgspec.ValidationError as error:
        unusable(proposal.trait, proposal.owner, proposal.value, str(error))
