"""With which GPU a user's server starts, chosen on the hub's page for it: an options form beside the one that is there.

In `jupyterhub_config.py`::

    configure(c, gpu_form=True)                 # or the models that may be picked: gpu_form=["A100", "H100"]
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import BadDemand
from ..model import Constraints, Demand, checked

KEY = "gpushare"  # in the spawner's user_options, where the hub remembers what was chosen: {"gpus": 1, "model": "A100"}
GPUS, MODEL = "gpushare_gpus", "gpushare_model"  # fields of the form
COUNTS = (1, 2, 4, 8)
PAGE = """
<div class="mb-3">
<label class="form-label" for="{gpus}">GPU</label>
<select class="form-select form-control" id="{gpus}" name="{gpus}">{counts}</select>
<div class="form-text text-muted">What notebooks of this server ask for, where they do not say otherwise.</div>
</div>
"""
MODELS = """
<div class="mb-3">
<label class="form-label" for="{model}">GPU model</label>
<select class="form-select form-control" id="{model}" name="{model}">{models}</select>
</div>
"""
Form = str | Callable[[Any], Any]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was chosen."""

    gpus: float
    model: str | None = None


async def options_form(
    spawner: Any, *, share: float = 0.1, models: tuple[str, ...] = (), before: Form | None = None
) -> str:
    """The form's HTML: ours, then `before` or what the spawner's class has of its own."""
    theirs: Any = spawner.trait_defaults("options_form") if before is None else before
    if callable(theirs):
        theirs = theirs(spawner)
        theirs = await theirs if inspect.isawaitable(theirs) else theirs
    return page(remembered(spawner), share, models) + (theirs or "")


def page(asked: Asked | None, share: float, models: tuple[str, ...]) -> str:
    """Our part of the form, with what was chosen last picked out."""
    chosen = share if asked is None else asked.gpus
    counts = {0.0: "none", share: f"a share (at least {share:.0%})", 1.0: "one whole GPU"}
    counts |= {float(count): f"{count} whole GPUs" for count in COUNTS if count > 1}
    if chosen not in counts:
        counts[chosen] = f"a share (at least {chosen:.0%})" if chosen < 1 else f"{chosen:g} whole GPUs"
    text = PAGE.format(gpus=GPUS, counts=_options({f"{gpus:g}": said for gpus, said in counts.items()}, f"{chosen:g}"))
    if models:
        picked = (asked.model if asked is not None else None) or ""
        text += MODELS.format(model=MODEL, models=_options({"": "any"} | {name: name for name in models}, picked))
    return text


def _options(choices: Mapping[str, str], picked: str) -> str:
    return "".join(
        f'<option value="{html.escape(value)}"{" selected" if value == picked else ""}>{html.escape(said)}</option>'
        for value, said in choices.items()
    )


def remembered(spawner: Any) -> Asked | None:
    """What was chosen for this server last; None where nothing usable was."""
    options = getattr(spawner, "user_options", None) or getattr(spawner.orm_spawner, "user_options", None) or {}
    try:
        return asked_in(options)
    except BadDemand:
        return None


def asked_in(options: Mapping[str, Any]) -> Asked | None:
    """What a server's options say; None where they say nothing. They come from users: raises BadDemand."""
    if KEY not in options:
        return None
    try:
        asked = msgspec.convert(options[KEY], Asked)
    except msgspec.ValidationError as error:
        raise BadDemand(f"{KEY}: {error}.") from None
    demand = checked(Demand(gpus=asked.gpus, constraints=Constraints(model=asked.model)))
    return Asked(demand.gpus, demand.constraints.model)


def sent(spawner: Any) -> dict[str, Any] | None:
    """What the form that started this server says of GPUs, as an entry of its options; None without such a form.

    Read from the request itself: what becomes of a form's fields is up to each spawner, and many drop unknown ones.
    """
    request = getattr(getattr(spawner, "handler", None), "request", None)
    fields = getattr(request, "arguments", {})
    gpus, model = _field(fields, GPUS), _field(fields, MODEL)
    if gpus is None:
        return None
    try:
        return {"gpus": float(gpus)} | ({"model": model} if model else {})
    except ValueError:
        return {"gpus": gpus}  # refused as the rest


def _field(fields: Mapping[str, list[bytes]], name: str) -> str | None:
    values = fields.get(name)
    return values[-1].decode(errors="replace") if values else None


def keep(spawner: Any, entry: dict[str, Any]) -> None:
    """Has the hub remember it with the server's other options."""
    spawner.user_options = {**(spawner.user_options or {}), KEY: entry}
    spawner.orm_spawner.user_options = {**(spawner.orm_spawner.user_options or {}), KEY: entry}
