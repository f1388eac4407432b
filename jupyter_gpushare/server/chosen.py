"""The demand that was chosen when a user's server was started, as its environment carries it to its kernels."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import parse_qsl, urlencode

VARIABLE = "GPUSHARE_DEMAND"  # such as gpus=0.25&model=A100: without braces, which some spawners take for templates


def as_text(gpus: float, model: str | None) -> str:
    return urlencode({"gpus": f"{gpus:g}"} | ({"model": model} if model else {}))


def as_fields(text: str) -> dict[str, Any]:
    """The fields of a demand, as `notebook.demand_from` checks them; none for an empty text."""
    fields: dict[str, Any] = dict(parse_qsl(text))
    with contextlib.suppress(KeyError, ValueError):  # what is no number is refused with the other fields
        fields["gpus"] = float(fields["gpus"])
    model = fields.pop("model", None)
    return fields | ({"constraints": {"model": model}} if model else {})
