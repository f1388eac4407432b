"""What a check says."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One check. `missing` is something not there that need not be; `broken` is what should work and does not."""

    check: str
    state: Literal["ok", "warning", "missing", "broken"]
    finding: str
    cause: str | None = None
    fix: str | None = None
